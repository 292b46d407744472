#include "frontend/base/strings.h"

#include <gtest/gtest.h>

namespace onnxtrain {
namespace {

TEST(Printable, ReplacesControlCharacters) { EXPECT_EQ(Printable("a\nb\x1b[31m\x7f"), "a?b?[31m?"); }

TEST(Printable, TruncatesBetweenCharacters) {
  std::string name(119, 'a');
  EXPECT_EQ(Printable(name + "é"), name + "…");
  EXPECT_EQ(Printable(name + "b"), name + "b");
}

TEST(Printable, CountsColumnsByCharacters) {
  EXPECT_EQ(CountColumns(""), 0);
  EXPECT_EQ(CountColumns("×1.5 µs"), 7);
}

}  // namespace
}  // namespace onnxtrain
