// A program that embeds the library: every automatic decision of the command line, without it.
#include "optim/plan/training_run.h"

#include <gmock/gmock.h>

#include "frontend/base/status.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/onnx/write/export.h"
#include "optim/plan/model_setup.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using testing::StartsWith;

class TrainingRunTest : public Scratch {
 protected:
  TrainingRunTest() {
    tiny::Mlp(3, "Softmax").Save(Path("m.onnx"));
    HostTensor x({DType::kFloat32, {96, 4}}), y({DType::kInt64, {96}});
    const std::vector<float> noise = tiny::Uniform(96 * 4, 0.5f, 7);
    for (int64_t i = 0; i < 96; ++i) {
      y.SetInt(i, i % 3);
      for (int64_t j = 0; j < 4; ++j) x.Set(i * 4 + j, noise[i * 4 + j] + (j == i % 3 ? 2 : 0));
    }
    EXPECT_TRUE(WriteNpz(Path("d.npz"), {{"x", x}, {"label", y}}).ok());
    config_.model = Path("m.onnx");
    config_.data = Path("d.npz");
  }

  std::string Error() const {
    const auto run = PrepareTraining(config_);
    return run.ok() ? "" : std::string(ToStd(run.status().message()));
  }

  TrainConfig config_;
};

TEST_F(TrainingRunTest, TrainsWithAutomaticChoices) {
  config_.eval_split = "0.25";
  config_.epochs = 8;
  config_.lr = {"0.02"};
  config_.micro_batch_size = TrainConfig::kAuto;
  config_.mixed_precision = "auto";
  auto run = PrepareTraining(config_);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->session->loss().name, "cross_entropy");
  EXPECT_EQ(run->batch.global, 32);
  EXPECT_EQ(run->batch.micro, 32);  // as many as there are
  EXPECT_EQ(run->steps.total, 24);
  EXPECT_EQ(run->optimizer.spec.beta2, 0.999);
  EXPECT_FALSE(run->optimizer.origin.trained);
  // Of 1, 4 and 32 samples; the last batch of an epoch and the evaluation data follow. The plan is that of the whole
  // run.
  const int64_t planned = run->data.models->imports();
  EXPECT_LE(planned, 3);
  TrainObserver observer;
  const auto result = Train(*run->session, run->train, run->eval, run->options, observer);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->steps, 24);
  EXPECT_EQ(run->data.models->imports(), planned);
  EXPECT_LT(result->eval_before.accuracy, 0.9);
  EXPECT_GT(result->eval.accuracy, 0.95);
  const auto weights = run->session->Weights();
  ASSERT_TRUE(weights.ok() && Export(*run->data.model, *weights, Path("trained.onnx")).ok());
  EXPECT_FALSE(
      (*OnnxModel::Load(Path("trained.onnx")))->Initializer("w1")->SameBytes(*run->data.model->Initializer("w1")));
}

TEST_F(TrainingRunTest, MovesWithEverythingInIt) {
  config_.eval_split = "last:0.25";
  config_.lr_scheduler = "plateau";
  config_.max_steps = 2;
  auto run = PrepareTraining(config_);
  ASSERT_TRUE(run.ok()) << run.status();
  TrainingRun moved = *std::move(run);
  EXPECT_EQ(moved.options.plateau, moved.plateau.get());
  TrainObserver observer;
  EXPECT_TRUE(Train(*moved.session, moved.train, moved.eval, moved.options, observer).ok());
}

TEST_F(TrainingRunTest, WithoutDataTrainsOnSyntheticSamples) {
  config_.data.clear();
  const auto run = PrepareTraining(config_);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_TRUE(run->data.synthetic);
  EXPECT_EQ(run->steps.total, 20);
}

// 8 × 8 kernels of 31 × 31 over 512 × 512 pixels: 97 GFLOP per sample.
TEST_F(TrainingRunTest, SyntheticStepsOfALargeModelAreSmall) {
  const std::vector<float> kernels = tiny::Uniform(8 * 8 * 31 * 31, 0.1f, 3);
  tiny::Model{.input_shape = {-1, 8, 512, 512},
              .nodes = {{"Conv", {"x", "k"}, {"c"}}, {"ReduceMean", {"c"}, {"y"}, {{"axes", {2, 3}}}}},
              .weights = {{"k", {8, 8, 31, 31}, kernels}}}
      .Save(Path("large.onnx"));
  config_ = {.model = Path("large.onnx"), .max_steps = 3};
  const auto model = LoadModel(config_);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto data = LoadTrainingData(config_, *model, {});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->synthetic_batch, 2);
  EXPECT_EQ(data->train.bound.dataset->size(), 6);
  EXPECT_THAT(data->train.bound.notes, testing::Contains(StartsWith("batches of 2 samples: a step of 32 would")));
  config_.batch_size = 4;
  const auto chosen = LoadTrainingData(config_, *model, {});
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->synthetic_batch, 4);
}

TEST_F(TrainingRunTest, TheResolvedConfigurationRepeatsTheRun) {
  config_.optimizer = "sgd";
  config_.max_steps = 3;
  const auto run = PrepareTraining(config_);
  ASSERT_TRUE(run.ok()) << run.status();
  const TrainConfig resolved = ResolveConfig(*run);
  EXPECT_EQ(resolved.lr, std::vector<std::string>{"0.05"});
  EXPECT_EQ(resolved.micro_batch_size, 32);
  EXPECT_EQ(resolved.momentum, 0);
  EXPECT_TRUE(resolved.betas.empty()) << "sgd has none";
  EXPECT_FALSE(IsSpecified(resolved, "epochs"));
  const auto again = FromJson(ToJson(resolved));
  ASSERT_TRUE(again.ok()) << again.status();
  const auto second = PrepareTraining(*again);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(ResolveConfig(*second), resolved);
}

TEST_F(TrainingRunTest, ErrorsNameFields) {
  config_.min_lr = 1e-5;
  EXPECT_THAT(Error(), StartsWith("`min_lr`: has no effect: `lr_scheduler` constant"));
  config_ = {.model = config_.model, .freeze = {"zz*"}, .data = config_.data};
  EXPECT_THAT(Error(), StartsWith("`freeze` zz*: matches no weight"));
  config_ = {.model = config_.model, .epochs = 2};
  EXPECT_THAT(Error(), StartsWith("`epochs`: has no effect: there is no `data`"));
  config_ = {.model = config_.model, .batch_size = 64, .micro_batch_size = 24};
  EXPECT_THAT(Error(), StartsWith("`micro_batch_size` 24 does not divide `batch_size` 64"));
  config_ = {};
  EXPECT_THAT(Error(), StartsWith("`model`: missing"));
}

}  // namespace
}  // namespace onnxtrain
