// The choices of `auto`, with made-up measurements, and in a run.
#include "optim/plan/auto_choices.h"

#include <gmock/gmock.h>

#include "frontend/base/status.h"
#include "frontend/data/sources/numpy.h"
#include "optim/plan/training_run.h"
#include "tests/tools/blobs.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(LargestDivisor, CoversTheBatchOrDividesIt) {
  EXPECT_EQ(LargestDivisor(32, 32, 1000), 32);
  EXPECT_EQ(LargestDivisor(32, 31, 1000), 16);
  EXPECT_EQ(LargestDivisor(32, 20, 20), 32) << "the data has no more samples";
  EXPECT_EQ(LargestDivisor(30, 14, 1000), 10);
  EXPECT_EQ(LargestDivisor(97, 50, 1000), 1);
  EXPECT_EQ(LargestDivisor(8, 0, 1000), 1);
}

TEST(FastestMicroBatch, HalvesAsLongAsThatPays) {
  std::vector<int64_t> measured;
  const auto measure = [&](const std::map<int64_t, double>& per_sample) {
    return [&measured, per_sample](int64_t samples) -> absl::StatusOr<double> {
      measured.push_back(samples);
      return per_sample.at(samples) * static_cast<double>(samples);
    };
  };
  auto best = FastestMicroBatch(32, false, measure({{32, 1.0}, {16, 0.8}, {8, 0.79}}));
  ASSERT_TRUE(best.ok());
  EXPECT_EQ(best->samples, 16);
  EXPECT_DOUBLE_EQ(best->seconds, 12.8);
  EXPECT_THAT(measured, ElementsAre(32, 16, 8));
  measured.clear();
  EXPECT_EQ(FastestMicroBatch(32, true, measure({{32, 1.0}}))->samples, 32);
  EXPECT_THAT(measured, ElementsAre(32));
  EXPECT_EQ(FastestMicroBatch(15, false, measure({{15, 1.0}}))->samples, 15);
  const auto fails = [](int64_t) -> absl::StatusOr<double> { return absl::ResourceExhaustedError("no"); };
  EXPECT_FALSE(FastestMicroBatch(4, false, fails).ok());
}

TEST(ChooseWorkers, KeepUpWithTheUpdates) {
  EXPECT_EQ(ChooseWorkers(0.0001, 0.1, 8), 0);
  EXPECT_EQ(ChooseWorkers(0.01, 0.1, 8), 1);
  EXPECT_EQ(ChooseWorkers(0.1, 0.1, 8), 2);
  EXPECT_EQ(ChooseWorkers(0.4, 0.1, 8), 5);
  EXPECT_EQ(ChooseWorkers(4, 0.1, 8), 8);
  EXPECT_EQ(ChooseWorkers(4, 0.1, 64), 16);
}

TEST(SetAutoFields, ScalesAutomaticRatesOfLargeBatches) {
  const auto scale = [](int64_t batch, TrainConfig config) {
    SetAutoFields(batch, &config);
    EXPECT_EQ(config.mixed_precision, "auto");
    return config.lr_scale;
  };
  EXPECT_EQ(scale(256, {}), "none");
  EXPECT_EQ(scale(512, {}), "auto");
  EXPECT_EQ(scale(512, {.lr = {"*bias=0.1"}}), "auto");
  EXPECT_EQ(scale(512, {.lr = {"0.1"}}), "none");
  EXPECT_EQ(scale(512, {.lr_find = true}), "none");
  EXPECT_EQ(scale(512, {.lr_scale = "linear"}), "linear");
  TrainConfig given{.specified = {"mixed_precision", "lr_scale"}};
  SetAutoFields(512, &given);
  EXPECT_EQ(given.mixed_precision, "no");
  EXPECT_EQ(given.lr_scale, "none");
}

class Auto : public Scratch {
 protected:
  Auto() {
    tiny::Mlp(3, "Softmax").Save(Path("m.onnx"));
    EXPECT_TRUE(WriteNpz(Path("d.npz"), Blobs(96)).ok());
    config_ = {.model = Path("m.onnx"), .data = Path("d.npz"), .max_steps = 4, .automatic = true};
  }

  static std::map<std::string, AutoChoice> ByField(const TrainingRun& run) {
    std::map<std::string, AutoChoice> choices;
    for (const AutoChoice& choice : run.choices) choices.emplace(choice.field, choice);
    return choices;
  }

  TrainConfig config_;
};

TEST_F(Auto, ChoosesWithReasonsAndIsResolved) {
  auto run = PrepareTraining(config_);
  ASSERT_TRUE(run.ok()) << run.status();
  const auto choices = ByField(*run);
  std::vector<std::string> fields;
  for (const auto& [field, choice] : choices) {
    fields.push_back(field);
    EXPECT_FALSE(choice.why.empty()) << field;
    EXPECT_NE(choice.why, "as given") << field;
  }
  EXPECT_THAT(fields, ElementsAre("gradient_checkpointing", "lr_scale", "micro_batch_size", "mixed_precision",
                                  "num_workers", "threads"));
  EXPECT_EQ(choices.at("mixed_precision").value, run->precision.name);
  EXPECT_EQ(choices.at("micro_batch_size").value, StrCat(run->session->micro_batch()));
  EXPECT_EQ(choices.at("num_workers").value, StrCat(run->options.num_workers));
  EXPECT_THAT(choices.at("gradient_checkpointing").why, HasSubstr("nothing is recomputed"));
  const TrainConfig resolved = ResolveConfig(*run);
  EXPECT_FALSE(IsSpecified(resolved, "auto"));
  EXPECT_EQ(resolved.micro_batch_size, run->batch.micro);
  EXPECT_EQ(resolved.num_workers, run->options.num_workers);
  EXPECT_EQ(resolved.mixed_precision, run->precision.name);
  const auto again = PrepareTraining(resolved);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->choices.empty());
  EXPECT_EQ(ResolveConfig(*again), resolved);
}

TEST_F(Auto, ExplicitFieldsWin) {
  config_.micro_batch_size = 4;
  config_.num_workers = 3;
  config_.threads = 1;
  config_.gradient_checkpointing = "all";
  config_.lr_scale = "sqrt";
  config_.specified = {"mixed_precision"};  // no
  const auto run = PrepareTraining(config_);
  ASSERT_TRUE(run.ok()) << run.status();
  for (const auto& [field, choice] : ByField(*run)) EXPECT_EQ(choice.why, "as given") << field;
  EXPECT_EQ(run->batch.micro, 4);
  EXPECT_EQ(run->options.num_workers, 3);
  EXPECT_EQ(run->config.threads, 1);
  EXPECT_EQ(run->precision.name, "no");
  EXPECT_EQ(run->config.lr_scale, "sqrt");
}

TEST_F(Auto, FitsTheMemory) {
  ASSERT_TRUE(WriteNpz(Path("d.npz"), Blobs(8192)).ok());
  config_.batch_size = 8192;
  config_.specified = {"mixed_precision"};
  config_.micro_batch_size = 8192;
  const auto whole = PrepareTraining(config_);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const SessionMemory memory = whole->session->memory();
  config_.micro_batch_size = 0;
  config_.memory_budget = (memory.total() - memory.activations / 4) * 100 / 95;
  const auto part = PrepareTraining(config_);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_LT(part->batch.micro, 8192);
  EXPECT_EQ(part->batch.micro * part->batch.accumulation, 8192);
  EXPECT_THAT(ByField(*part).at("micro_batch_size").why, HasSubstr("the most that divides 8192 and fits the memory"));
}

}  // namespace
}  // namespace onnxtrain
