// What a save costs, and when it is worth a copy of the state.
#include "optim/record/checkpoint/save_plan.h"

#include <gtest/gtest.h>

namespace onnxtrain {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20, kState = 1000 * kMebibyte, kRoomy = 8000 * kMebibyte;

TEST(PlanSave, CopiesWhereThereIsRoom) {
  const TrainConfig config;
  const SavePlan roomy = PlanSave(config, {.state_bytes = kState}, kRoomy);
  EXPECT_EQ(roomy.method, SaveMethod::kCopy);
  EXPECT_GE(roomy.bytes, kState);
  const SavePlan tight = PlanSave(config, {.state_bytes = kState}, kState);
  EXPECT_EQ(tight.method, SaveMethod::kInPlace) << "the room must hold what the writer needs, too";
  EXPECT_LT(tight.bytes, kState / 50);
  EXPECT_GT(tight.pause_seconds, roomy.pause_seconds);
  EXPECT_EQ(PlanSave(config, {.state_bytes = kState}, roomy.bytes).method, SaveMethod::kCopy);
}

TEST(PlanSave, TheEndOfARunNeedsNoCopy) {
  TrainConfig config;
  config.save_every.value = 0;
  EXPECT_EQ(PlanSave(config, {.state_bytes = kState}, kRoomy).method, SaveMethod::kInPlace);
  config.keep_best = 1;  // updates follow the save of a best evaluation
  EXPECT_EQ(PlanSave(config, {.state_bytes = kState}, kRoomy).method, SaveMethod::kCopy);
}

TEST(PlanSave, AStateOnADeviceIsCopiedToTheHost) {
  TrainConfig config;
  config.save_every.value = 0;
  EXPECT_EQ(PlanSave(config, {.state_bytes = kState, .on_host = false}, 0).method, SaveMethod::kCopy);
  EXPECT_EQ(PlanSave(config, {}, kRoomy).method, SaveMethod::kNone);
  EXPECT_EQ(DescribeSave(PlanSave(config, {}, kRoomy)), "");
}

TEST(PlanSave, CompressionTakesMemory) {
  TrainConfig config;
  const SavePlan plain = PlanSave(config, {.state_bytes = kState}, 0);
  config.checkpoint_compression = "zstd";
  EXPECT_GT(PlanSave(config, {.state_bytes = kState}, 0).bytes, plain.bytes);
}

}  // namespace
}  // namespace onnxtrain
