#include "optim/plan/constant_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onnxtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(DefaultInputs, CachesAreEmptyAndTheirSwitchIsOff) {
  const std::vector<OnnxModel::Input> inputs = {
      {"input_ids", DType::kInt64, {-1, -1}, {"batch", "sequence"}},
      {"past_key_values.0.key", DType::kFloat32, {-1, 4, -1, 8}, {"batch", "", "past", ""}},
      {"past_key_values.0.value", DType::kFloat32, {-1, 4, -1, 8}, {"batch", "", "past", ""}},
      {"past_key_values.1.key", DType::kFloat32, {-1, 4, 16, 8}, {"batch", "", "", ""}},  // of a fixed length
      {"use_cache_branch", DType::kBool, {1}, {""}},
  };
  const DefaultInputs natural =
      FindDefaultInputs(inputs, [](const std::string& name) { return name == "past_key_values.0.value"; });
  ASSERT_EQ(natural.fixed.size(), 2u);
  EXPECT_EQ(natural.fixed.at("past_key_values.0.key").shape(), (Shape{1, 4, 0, 8}));
  EXPECT_EQ(natural.fixed.at("use_cache_branch").ToInts(), std::vector<int64_t>{0});
  EXPECT_THAT(natural.notes, ElementsAre(HasSubstr("past_key_values.0.key"), HasSubstr("false")));
  std::vector<std::string> rest;
  for (const auto& input : WithoutFixed(inputs, natural)) rest.push_back(input.name);
  EXPECT_THAT(rest, ElementsAre("input_ids", "past_key_values.0.value", "past_key_values.1.key"));
}

}  // namespace
}  // namespace onnxtrain
