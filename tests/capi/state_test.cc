// Accumulation, gradients and saved states through the C interface.
#include <gmock/gmock.h>

#include <cstring>

#include "tests/capi/api_handle.h"

namespace onnxtrain {
namespace {

using CApiState = CApi;

std::string SaveState(OnnxtrainTrainer* trainer) {
  OnnxtrainBytes* bytes = nullptr;
  EXPECT_API_OK(Api().SaveStateToBytes(trainer, &bytes));
  std::string text(static_cast<const char*>(Api().GetBytesData(bytes)), Api().GetBytesSize(bytes));
  Api().ReleaseBytes(bytes);
  return text;
}

void Train(OnnxtrainTrainer* trainer, int first, int last) {
  for (int i = first; i < last; ++i) {
    BlobBatch batch(24, i);
    EXPECT_API_OK(Api().TrainStep(trainer, batch.data(), batch.size(), nullptr));
  }
}

constexpr char kScheduled[] =
    R"({"batch_size": 24, "lr": 0.01, "threads": 1, "lr_scheduler": "cosine", "max_steps": 20, "ema_decay": 0.9})";

TEST_F(CApiState, ContinuesWithTheSameBits) {
  OnnxtrainTrainer *whole = Open(kScheduled), *first = Open(kScheduled), *second = Open(kScheduled);
  for (OnnxtrainTrainer* trainer : {whole, first}) {
    Train(trainer, 0, 5);
    EXPECT_API_OK(Api().SetLearningRate(trainer, 0.02));
  }
  EXPECT_API_OK(Api().SaveStateToFile(first, Path("state").c_str()));
  EXPECT_EQ(ReadAll(Path("state")), SaveState(first));
  Train(whole, 5, 12);
  Train(second, 0, 3);  // is overwritten
  EXPECT_API_OK(Api().LoadStateFromFile(second, Path("state").c_str()));
  double a = 0, b = 1;
  EXPECT_API_OK(Api().GetLearningRate(first, &a));
  EXPECT_API_OK(Api().GetLearningRate(second, &b));
  EXPECT_NEAR(a, b, 1e-8);
  Train(second, 5, 12);
  EXPECT_EQ(ParameterBytes(second), ParameterBytes(whole));
  OnnxtrainStepResult result;
  BlobBatch batch(24);
  EXPECT_API_OK(Api().TrainStep(second, batch.data(), batch.size(), &result));
  EXPECT_EQ(result.step, 13);
  for (OnnxtrainTrainer* trainer : {whole, first, second}) Api().ReleaseTrainer(trainer);
}

TEST_F(CApiState, DamageIsFound) {
  OnnxtrainTrainer* trainer = Open();
  Train(trainer, 0, 2);
  const std::string state = SaveState(trainer), before = ParameterBytes(trainer);
  Train(trainer, 2, 3);
  const std::string after = ParameterBytes(trainer);
  for (size_t size = 0; size < state.size(); size += 97)
    EXPECT_API_FAILS(Api().LoadStateFromBytes(trainer, state.data(), size), ONNXTRAIN_INVALID_ARGUMENT, "is ");
  for (size_t at = 0; at < state.size(); at += 97) {
    std::string damaged = state;
    damaged[at] ^= 1;
    EXPECT_API_FAILS(Api().LoadStateFromBytes(trainer, damaged.data(), damaged.size()), ONNXTRAIN_INVALID_ARGUMENT,
                     "is ");
  }
  EXPECT_API_FAILS(Api().LoadStateFromFile(trainer, Path("m.onnx").c_str()), ONNXTRAIN_INVALID_ARGUMENT,
                   "m.onnx: is no");
  EXPECT_API_FAILS(Api().LoadStateFromFile(trainer, Path("none").c_str()), ONNXTRAIN_NOT_FOUND, "none");
  EXPECT_EQ(ParameterBytes(trainer), after);
  EXPECT_API_OK(Api().LoadStateFromBytes(trainer, state.data(), state.size()));
  EXPECT_EQ(ParameterBytes(trainer), before);
  Api().ReleaseTrainer(trainer);
}

TEST_F(CApiState, OfAnotherTrainerIsRefused) {
  OnnxtrainTrainer *adam = Open(), *sgd = Open(R"({"optimizer": "sgd", "lr": 0.1, "threads": 1})");
  const std::string state = SaveState(adam);
  EXPECT_API_FAILS(Api().LoadStateFromBytes(sgd, state.data(), state.size()), ONNXTRAIN_INVALID_ARGUMENT, "tensors");
  Api().ReleaseTrainer(adam);
  Api().ReleaseTrainer(sgd);
}

// The tensors of a batch from sample `begin` on.
std::vector<OnnxtrainTensor> Part(BlobBatch& batch, int64_t begin, const int64_t (&x)[2], const int64_t (&label)[1]) {
  return {
      {"x", ONNXTRAIN_FLOAT, 2, x, static_cast<const float*>(batch.x().data) + 4 * begin, size_t(x[0]) * 16},
      {"label", ONNXTRAIN_INT64, 1, label, static_cast<const int64_t*>(batch.label().data) + begin, size_t(x[0]) * 8}};
}

std::vector<float> Parameters(OnnxtrainTrainer* trainer) {
  const std::string bytes = ParameterBytes(trainer);
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Two halves add up to twice the mean gradient of the whole.
TEST_F(CApiState, AccumulatesGradientsOfBatches) {
  OnnxtrainTrainer* whole = Open(R"({"optimizer": "sgd", "lr": 0.2, "max_grad_norm": 0, "threads": 1})");
  OnnxtrainTrainer* halves = Open(R"({"optimizer": "sgd", "lr": 0.1, "max_grad_norm": 0, "threads": 1})");
  const int64_t x[] = {12, 4}, label[] = {12};
  for (int i = 0; i < 5; ++i) {
    BlobBatch batch(24, i);
    OnnxtrainStepResult of_whole, of_halves;
    EXPECT_API_OK(Api().TrainStep(whole, batch.data(), batch.size(), &of_whole));
    for (const int64_t begin : {0, 12}) {
      const auto part = Part(batch, begin, x, label);
      EXPECT_API_OK(Api().Accumulate(halves, part.data(), part.size()));
    }
    EXPECT_API_OK(Api().Apply(halves, &of_halves));
    EXPECT_NEAR(of_halves.loss, of_whole.loss, 1e-6);
    EXPECT_NEAR(of_halves.grad_norm, 2 * of_whole.grad_norm, 1e-5);
    EXPECT_EQ(of_halves.step, i + 1);
  }
  EXPECT_THAT(Parameters(halves), testing::Pointwise(testing::FloatNear(1e-6f), Parameters(whole)));
  Api().ReleaseTrainer(whole);
  Api().ReleaseTrainer(halves);
}

TEST_F(CApiState, AppliesNothingTwice) {
  OnnxtrainTrainer* trainer = Open();
  BlobBatch batch(24);
  EXPECT_API_FAILS(Api().Apply(trainer, nullptr), ONNXTRAIN_INVALID_ARGUMENT, "no gradient");
  EXPECT_API_OK(Api().Accumulate(trainer, batch.data(), batch.size()));
  EXPECT_API_OK(Api().Apply(trainer, nullptr));
  EXPECT_API_FAILS(Api().Apply(trainer, nullptr), ONNXTRAIN_INVALID_ARGUMENT, "no gradient");
  EXPECT_API_OK(Api().Accumulate(trainer, batch.data(), batch.size()));
  OnnxtrainEvaluation evaluation;
  EXPECT_API_OK(Api().Evaluate(trainer, batch.data(), batch.size(), &evaluation));  // discards
  EXPECT_API_FAILS(Api().Apply(trainer, nullptr), ONNXTRAIN_INVALID_ARGUMENT, "no gradient");
  Api().ReleaseTrainer(trainer);
}

// Plain gradient descent moves the weights by rate × gradient.
TEST_F(CApiState, GradientsAreThoseOfTheStep) {
  OnnxtrainTrainer* trainer = Open(R"({"optimizer": "sgd", "lr": 0.5, "max_grad_norm": 0, "threads": 1})");
  BlobBatch batch(24);
  std::vector<float> expected = Parameters(trainer);
  double loss = 0;
  OnnxtrainTensors* gradients = nullptr;
  EXPECT_API_OK(Api().GetGradients(trainer, batch.data(), batch.size(), &loss, &gradients));
  size_t at = 0;
  for (uint64_t i = 0; i < Api().GetTensorCount(gradients); ++i) {
    OnnxtrainTensor gradient;
    EXPECT_API_OK(Api().GetTensor(gradients, i, &gradient));
    for (size_t k = 0; k < gradient.bytes / 4; ++k)
      expected[at++] -= 0.5f * static_cast<const float*>(gradient.data)[k];
  }
  ASSERT_EQ(at, expected.size());
  Api().ReleaseTensors(gradients);
  OnnxtrainStepResult result;
  EXPECT_API_OK(Api().TrainStep(trainer, batch.data(), batch.size(), &result));
  EXPECT_NEAR(result.loss, loss, 1e-6);
  EXPECT_THAT(Parameters(trainer), testing::Pointwise(testing::FloatNear(1e-6f), expected));
  Api().ReleaseTrainer(trainer);
}

// Finite differences of the loss with respect to some elements of x; of micro-batches, too.
void CheckInputGradients(OnnxtrainTrainer* trainer, const std::vector<OnnxtrainTensor>& batch, HostTensor& x) {
  const auto loss_and_gradients = [&](OnnxtrainTensors** gradients) {
    double loss = 0;
    EXPECT_API_OK(Api().GetInputGradients(trainer, batch.data(), batch.size(), &loss, gradients));
    return loss;
  };
  OnnxtrainTensors* gradients = nullptr;
  loss_and_gradients(&gradients);
  EXPECT_EQ(Api().GetTensorCount(gradients), 1u);
  OnnxtrainTensor gradient;
  EXPECT_API_OK(Api().FindTensor(gradients, "x", &gradient));
  ASSERT_EQ(gradient.bytes, x.bytes().size());
  for (const int64_t i : {0, 5, 34, 95}) {
    double losses[2];
    const double h = 0.01, value = x.At(i);
    for (const int side : {0, 1}) {
      x.Set(i, value + (side == 0 ? -h : h));
      OnnxtrainTensors* ignored = nullptr;
      losses[side] = loss_and_gradients(&ignored);
      Api().ReleaseTensors(ignored);
    }
    x.Set(i, value);
    const float got = static_cast<const float*>(gradient.data)[i];
    EXPECT_NEAR(got, (losses[1] - losses[0]) / (2 * h), 2e-5) << i;
    EXPECT_NE(got, 0);
  }
  Api().ReleaseTensors(gradients);
}

TEST_F(CApiState, GradientsOfInputs) {
  for (const char* config : {R"({"threads": 1})", R"({"threads": 1, "batch_size": 24, "micro_batch_size": 8})"}) {
    OnnxtrainTrainer* trainer = Open(config);
    BlobBatch batch(24);
    const std::vector<float> before = Parameters(trainer);
    CheckInputGradients(trainer, {batch.x(), batch.label()}, batch.values(0));
    EXPECT_EQ(Parameters(trainer), before);
    Api().ReleaseTrainer(trainer);
  }
}

TEST_F(CApiState, VectorJacobianProducts) {
  OnnxtrainTrainer* trainer = Open(R"({"loss": "dot", "threads": 1})");
  BlobBatch batch(24);
  std::vector<float> vectors(24 * 3);
  for (size_t i = 0; i < vectors.size(); ++i) vectors[i] = 0.1f * static_cast<float>(i % 7) - 0.25f;
  const int64_t shape[] = {24, 3};
  const OnnxtrainTensor label = {"label", ONNXTRAIN_FLOAT, 2, shape, vectors.data(), vectors.size() * sizeof(float)};
  CheckInputGradients(trainer, {batch.x(), label}, batch.values(0));
  Api().ReleaseTrainer(trainer);
}

}  // namespace
}  // namespace onnxtrain
