// What is true of several operators stands in their rows (frontend/ops): no other file lists operator names. A table
// that gives each operator a function of its own, {"Slice", SinkSlice}, is no list.
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>
#include <vector>

#include "frontend/ops/import/onnx_import.h"
#include "frontend/ops/row.h"
#include "tests/layout/source_tree.h"

namespace onnxtrain::layout {
namespace {

constexpr size_t kMaxNames = 2;  // in one expression

// Rows, kernels, and the examples of the generated table.
bool MayListOperators(const std::string& path) {
  static const std::regex allowed(
      "^(frontend/ops|backends/cpu|backends/torch/kernels|tools/op_table|tools/bench|tests)/");
  return std::regex_search(path, allowed);
}

std::set<std::string, std::less<>> OperatorNames() {
  std::set<std::string, std::less<>> names;
  for (const OpRow* row : AllOps()) names.emplace(row->name);
  for (const OnnxOp* op : AllOnnxOps()) names.emplace(op->op_type);
  return names;
}

// Returns each run of operator names that only separators, comparisons and words of an expression part.
std::vector<std::vector<std::string>> FindLists(const std::string& source) {
  const std::string text = std::regex_replace(source, std::regex("//[^\n]*"), "");
  static const auto names = OperatorNames();
  static const std::regex literal("\"([A-Za-z0-9]+)\""), between("[\\s,{}()]*|[^;\"{}]*(==|\\|\\|)[^;\"{}]*");
  std::vector<std::vector<std::string>> lists;
  std::string::const_iterator end = text.begin();
  for (std::sregex_iterator m(text.begin(), text.end(), literal), none; m != none; ++m) {
    if (!names.contains((*m)[1].str())) continue;
    if (lists.empty() || !std::regex_match(end, (*m)[0].first, between)) lists.emplace_back();
    lists.back().push_back((*m)[1]);
    end = (*m)[0].second;
  }
  std::erase_if(lists, [](const auto& list) { return list.size() <= kMaxNames; });
  return lists;
}

TEST(OperatorLists, StandInRowsAlone) {
  for (const SourceFile& file : ReadSources({".h", ".cc"})) {
    if (MayListOperators(file.path)) continue;
    for (const auto& list : FindLists(file.text))
      ADD_FAILURE() << file.path << ": a list of operators from " << list.front() << " to " << list.back()
                    << ": add a trait to their rows (frontend/ops/row.h, frontend/ops/import/onnx_import.h)";
  }
}

TEST(OperatorLists, AreFound) {
  EXPECT_EQ(FindLists("IsOneOf(op, {\"Relu\", \"Tanh\", \"Gelu\"})").size(), 1u);
  EXPECT_EQ(FindLists("op == \"Relu\" || op == \"Tanh\" || node.op == \"Gelu\"").size(), 1u);
  EXPECT_EQ(FindLists("{\"Slice\", SinkSlice}, {\"Pad\", SinkPad}, {\"Concat\", SinkConcat}").size(), 0u);
  EXPECT_EQ(FindLists("b.Op(\"Relu\", x); b.Op(\"Tanh\", x); b.Op(\"Gelu\", x);").size(), 0u);
}

}  // namespace
}  // namespace onnxtrain::layout
