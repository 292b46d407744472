#include "optim/plan/open_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "frontend/base/strings.h"

namespace onnxtrain {
namespace {

using testing::HasSubstr;

ModelInput Input(std::vector<int64_t> dims, DType dtype = DType::kFloat32) {
  const size_t rank = dims.size();
  return {.name = "x", .dtype = dtype, .dims = std::move(dims), .dim_names = std::vector<std::string>(rank)};
}

absl::StatusOr<ImageOptions> Plan(std::vector<int64_t> dims, const TrainConfig& config = {},
                                  const std::optional<Preprocess>& before = std::nullopt) {
  return PlanImages(config, {Input({-1, 8}, DType::kInt64), Input(std::move(dims))}, {}, before);
}

TEST(ImagePlan, FollowsTheInput) {
  const struct {
    std::vector<int64_t> dims;
    Shape sample;
    bool last;
  } cases[] = {
      {{-1, 3, 32, 48}, {3, 32, 48}, false}, {{-1, 1, 28, 28}, {1, 28, 28}, false},
      {{-1, 32, 48, 3}, {32, 48, 3}, true},  {{4, 28, 28, 1}, {28, 28, 1}, true},
      {{-1, 28, 30}, {1, 28, 30}, false},    {{-1, 784}, {1, 28, 28}, false},
      {{-1, 3072}, {3, 32, 32}, false},      {{-1, -1, 64, 64}, {3, 64, 64}, false},
  };
  for (const auto& c : cases) {
    const auto plan = Plan(c.dims);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->sample().shape, c.sample) << c.dims.size();
    EXPECT_EQ(plan->channels_last, c.last);
    EXPECT_EQ(plan->fit, ImageFit::kCrop);
  }
}

TEST(ImagePlan, OpenSizesAreKeptOrAskedFor) {
  const auto open = Plan({-1, 3, -1, -1});
  ASSERT_TRUE(open.ok());
  EXPECT_EQ(open->width, 0);
  ASSERT_TRUE(open->sizes.has_value());
  EXPECT_EQ(open->sizes->input, "x");
  TrainConfig config;
  config.resize = "pad";
  EXPECT_FALSE(Plan({-1, 3, -1, -1}, config)->sizes.has_value());
  EXPECT_EQ(Plan({-1, 3, -1, -1}, config)->problem,
            "input 'x' leaves the size of pictures open; `image_size` N sets it");
  EXPECT_EQ(Plan({-1, 3, 32, -1})->problem, "input 'x' leaves the size of pictures open; `image_size` N sets it");
  config.image_size = "32x48";
  EXPECT_EQ(Plan({-1, 3, -1, -1}, config)->sample().shape, (Shape{3, 32, 48}));
  EXPECT_EQ(Plan({-1, 5, 7, 9})->problem, "none of the model's inputs takes pictures");
}

TEST(ImagePlan, SizesThatContradictTheModelAreErrors) {
  TrainConfig config;
  config.image_size = "64";
  EXPECT_THAT(std::string(ToStd(Plan({-1, 3, 32, 48}, config).status().message())),
              HasSubstr("`image_size` 64x64: input 'x' takes pictures of 32 × 48"));
  for (const char* text : {"0", "12x", "x", "1x2x3", "99999", "-4"}) {
    config.image_size = text;
    EXPECT_FALSE(Plan({-1, 3, -1, -1}, config).ok()) << text;
  }
}

TEST(ImagePlan, WhatNeedsOneSizeIsRefusedWithoutOne) {
  for (const char* augment : {"crop", "mixup", "cutmix"}) {
    TrainConfig config;
    config.augment = {augment};
    EXPECT_THAT(std::string(ToStd(Plan({-1, 3, -1, -1}, config).status().message())), HasSubstr("`image_size` N"));
    config.image_size = "16";
    EXPECT_TRUE(Plan({-1, 3, -1, -1}, config).ok());
  }
}

TEST(ImagePlan, EvaluationKeepsTheMultipleOfSizes) {
  const auto trained = Plan({-1, 3, -1, -1});
  const Preprocess before{.pictures = DescribeImages(*trained, 32, {})};
  const auto read = ParsePreprocess(ToJson(before));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(Plan({-1, 3, -1, -1}, {}, *read)->sizes->multiple, 32);
}

TEST(ImagePlan, EvaluationFollowsTraining) {
  TrainConfig config;
  config.image_size = "40", config.resize = "pad", config.channel_order = "bgr";
  const auto trained = Plan({-1, -1, -1, 3}, config);
  ASSERT_TRUE(trained.ok()) << trained.status();
  Preprocess before{.pictures = DescribeImages(*trained, 0, {{"a", "images/"}, {"b", "masks", PictureKind::kMask}})};
  const auto read = ParsePreprocess(ToJson(before));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read->pictures, *before.pictures);
  const auto plan = Plan({-1, -1, -1, 3}, {}, *read);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->sample().shape, (Shape{40, 40, 3}));
  EXPECT_EQ(plan->fit, ImageFit::kPad);
  EXPECT_TRUE(plan->bgr);
}

}  // namespace
}  // namespace onnxtrain
