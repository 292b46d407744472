// frontend/ops/GRADIENTS.md is what op_table writes.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

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
  const std::vector<std::string> got = Lines(std::ifstream(ONNXTRAIN_SOURCE_DIR "/frontend/ops/GRADIENTS.md"));
  ASSERT_EQ(got.size(), want.size()) << "run: build/release/bin/op_table > frontend/ops/GRADIENTS.md";
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i], want[i]) << "run: build/release/bin/op_table > frontend/ops/GRADIENTS.md";
  }
}

}  // namespace
}  // namespace onnxtrain
