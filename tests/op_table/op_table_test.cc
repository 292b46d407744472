// docs/reference/operators.md is what op_table writes.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "frontend/ops/row.h"
#include "tests/paths.h"
#include "tools/op_table/op_table.h"

namespace onnxtrain {
namespace {

std::vector<std::string> Lines(std::istream&& text) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST(OpTable, IsCurrent) {
  const auto page = OpTablePage();
  ASSERT_TRUE(page.ok()) << page.status();
  const std::vector<std::string> want = Lines(std::istringstream(*page));
  const std::vector<std::string> got = Lines(std::ifstream(RepoPath("docs/reference/operators.md")));
  ASSERT_EQ(got.size(), want.size()) << "run: build/release/bin/op_table > docs/reference/operators.md";
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i], want[i]) << "run: build/release/bin/op_table > docs/reference/operators.md";
  }
}

// A reason for each of them, and for no other.
TEST(OpTable, SaysWhyThereIsNoGradient) {
  std::set<std::string_view> without, listed;
  for (const OpRow* row : AllOps()) {
    const bool own = row->name.find('.') == std::string_view::npos;  // backends' rows run after differentiation
    if (own && row->grad_status == GradStatus::kNotDifferentiable) without.insert(row->name);
  }
  for (const NoGradient& entry : OperatorsWithoutGradient()) {
    EXPECT_TRUE(listed.insert(entry.op).second) << entry.op;
    EXPECT_FALSE(entry.reason.empty()) << entry.op;
    EXPECT_EQ(NoGradientReason(entry.op), entry.reason);
  }
  EXPECT_EQ(listed, without);
}

// An operator of ONNX that has none would need a reason of its own.
TEST(OpTable, NoOperatorOfOnnxIsRefusedAGradient) {
  for (const OnnxOp* op : AllOnnxOps()) EXPECT_TRUE(HasGradient(*op).ok()) << op->domain << "." << op->op_type;
}

}  // namespace
}  // namespace onnxtrain
