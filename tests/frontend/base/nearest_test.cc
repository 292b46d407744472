#include "frontend/base/strings.h"

#include <gtest/gtest.h>

namespace onnxtrain {
namespace {

TEST(Nearest, FindsWhatWasMeant) {
  const std::vector<std::string> names = {"batch_size", "epochs", "eval_data", "lr"};
  EXPECT_EQ(Nearest("batch_sise", names), "batch_size");
  EXPECT_EQ(Nearest("epcohs", names), "epochs");
  EXPECT_EQ(Nearest("eval", names), "eval_data");
  EXPECT_EQ(Nearest("rl", names), "lr");
  EXPECT_EQ(Nearest("something_else", names), "");
}

}  // namespace
}  // namespace onnxtrain
