// Loops over batches of a callback, and views of weights.
#include <cstring>
#include <memory>

#include "tests/capi/api_handle.h"

namespace onnxtrain {
namespace {

// A program that hands batches over, and fails where it is told to.
struct Program {
  int batches = 0;      // to hand over
  int fails_at = -1;    // the batch before which next_batch fails
  int stops_at = -1;    // the update after which progress fails
  int cancels_at = -1;  // the update after which progress cancels
  OnnxtrainTrainer* trainer = nullptr;
  int handed = 0;
  std::vector<int64_t> steps;
  std::vector<std::string> lines;
  OnnxtrainCode inner = ONNXTRAIN_OK;  // of a call from a callback
  std::unique_ptr<BlobBatch> batch;
};

int NextBatch(void* user, const OnnxtrainTensor** batch, uint64_t* count) {
  auto& p = *static_cast<Program*>(user);
  if (p.handed == p.fails_at) return 7;
  if (p.handed == p.batches) return *count = 0, 0;
  p.batch = std::make_unique<BlobBatch>(24, static_cast<uint32_t>(p.handed++));
  *batch = p.batch->data();
  *count = p.batch->size();
  return 0;
}

int Progress(void* user, const OnnxtrainStepResult* result) {
  auto& p = *static_cast<Program*>(user);
  p.steps.push_back(result->step);
  if (p.trainer != nullptr) {
    double rate = 0;
    p.inner = Take(Api().GetLearningRate(p.trainer, &rate)).code;
  }
  if (result->step == p.cancels_at) EXPECT_API_OK(Api().Cancel(p.trainer));
  return result->step == p.stops_at ? -3 : 0;
}

void Log(void* user, const char* line) { static_cast<Program*>(user)->lines.emplace_back(line); }

// The number of samples whose first score is the largest.
int CountFirst(void*, const OnnxtrainTensor* batch, uint64_t count, const OnnxtrainTensor* outputs, uint64_t n,
               double* sum, double* weight) {
  if (count != 2 || n != 1 || std::strcmp(outputs[0].name, "y") != 0) return 1;
  const auto* y = static_cast<const float*>(outputs[0].data);
  for (int64_t i = 0; i < outputs[0].shape[0]; ++i, y += 3) *sum += y[0] > y[1] && y[0] > y[2];
  *weight = static_cast<double>(batch[0].shape[0]);
  return 0;
}

OnnxtrainCallbacks Callbacks(Program* program) { return {program, NextBatch, Progress, Log, CountFirst}; }

class CApiCallbacks : public CApi {
 protected:
  CApiCallbacks() : trainer_(Open()) {}
  ~CApiCallbacks() override { Api().ReleaseTrainer(trainer_); }
  OnnxtrainTrainer* trainer_;
};

TEST_F(CApiCallbacks, FitsTheBatchesOfASource) {
  OnnxtrainTrainer* by_steps = Open();
  for (int i = 0; i < 5; ++i) {
    BlobBatch batch(24, i);
    EXPECT_API_OK(Api().TrainStep(by_steps, batch.data(), batch.size(), nullptr));
  }
  Program program{.batches = 5, .trainer = trainer_};
  const OnnxtrainCallbacks callbacks = Callbacks(&program);
  OnnxtrainStepResult last;
  EXPECT_API_OK(Api().Fit(trainer_, &callbacks, 3, &last));
  EXPECT_EQ(last.step, 3);
  EXPECT_API_OK(Api().Fit(trainer_, &callbacks, 0, &last));
  EXPECT_EQ(last.step, 5);
  EXPECT_EQ(program.steps, (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(program.inner, ONNXTRAIN_BUSY);
  EXPECT_EQ(ParameterBytes(trainer_), ParameterBytes(by_steps));
  ASSERT_FALSE(program.lines.empty());
  EXPECT_NE(program.lines.back().find("cross_entropy"), std::string::npos) << program.lines.back();
  EXPECT_API_OK(Api().Fit(trainer_, &callbacks, 0, &last));
  EXPECT_EQ(last.step, 0);
  Api().ReleaseTrainer(by_steps);
}

TEST_F(CApiCallbacks, FailuresEndTheCall) {
  Program source{.batches = 9, .fails_at = 2};
  OnnxtrainCallbacks callbacks = Callbacks(&source);
  EXPECT_API_FAILS(Api().Fit(trainer_, &callbacks, 0, nullptr), ONNXTRAIN_CALLBACK,
                   "the callback next_batch failed: it returned 7");
  EXPECT_EQ(source.steps.size(), 2u);
  Program progress{.batches = 9, .stops_at = 4};
  callbacks = Callbacks(&progress);
  OnnxtrainStepResult last;
  EXPECT_API_FAILS(Api().Fit(trainer_, &callbacks, 0, &last), ONNXTRAIN_CALLBACK, "progress failed: it returned -3");
  EXPECT_EQ(last.step, 4);
  Program metric{.batches = 1};
  callbacks = Callbacks(&metric);
  callbacks.metric = [](void*, const OnnxtrainTensor*, uint64_t, const OnnxtrainTensor*, uint64_t, double*, double*) {
    return 5;
  };
  double value = 0;
  EXPECT_API_FAILS(Api().EvaluateAll(trainer_, &callbacks, nullptr, &value), ONNXTRAIN_CALLBACK, "metric failed");
  Program cancels{.batches = 9, .cancels_at = 6, .trainer = trainer_};
  callbacks = Callbacks(&cancels);
  EXPECT_API_FAILS(Api().Fit(trainer_, &callbacks, 0, nullptr), ONNXTRAIN_CANCELLED, "cancelled");
  EXPECT_EQ(cancels.steps.back(), 6);
  EXPECT_API_OK(Api().ClearCancel(trainer_));
  BlobBatch batch(24);
  EXPECT_API_OK(Api().TrainStep(trainer_, batch.data(), batch.size(), &last));
  EXPECT_EQ(last.step, 7);
}

TEST_F(CApiCallbacks, EvaluatesTheBatchesOfASource) {
  Program program{.batches = 3};
  const OnnxtrainCallbacks callbacks = Callbacks(&program);
  OnnxtrainEvaluation all;
  double metric = -1;
  EXPECT_API_OK(Api().EvaluateAll(trainer_, &callbacks, &all, &metric));
  EXPECT_EQ(all.samples, 72);
  double loss = 0, first = 0;
  for (uint32_t i = 0; i < 3; ++i) {
    BlobBatch batch(24, i);
    OnnxtrainEvaluation part;
    EXPECT_API_OK(Api().Evaluate(trainer_, batch.data(), batch.size(), &part));
    loss += part.loss / 3;
    OnnxtrainTensors* outputs = nullptr;
    OnnxtrainTensor y;
    EXPECT_API_OK(Api().Predict(trainer_, batch.data(), batch.size(), &outputs));
    EXPECT_API_OK(Api().GetTensor(outputs, 0, &y));
    double weight = 0;
    EXPECT_EQ(CountFirst(nullptr, batch.data(), 2, &y, 1, &first, &weight), 0);
    Api().ReleaseTensors(outputs);
  }
  EXPECT_NEAR(all.loss, loss, 1e-9);
  EXPECT_NEAR(metric, first / 72, 1e-12);
  EXPECT_API_FAILS(Api().EvaluateAll(trainer_, &callbacks, &all, nullptr), ONNXTRAIN_INVALID_ARGUMENT, "no batches");
}

TEST_F(CApiCallbacks, MissingCallbacksAreNamed) {
  OnnxtrainCallbacks callbacks = {};
  double metric = 0;
  EXPECT_API_FAILS(Api().Fit(trainer_, nullptr, 0, nullptr), ONNXTRAIN_INVALID_ARGUMENT, "callbacks is null");
  EXPECT_API_FAILS(Api().Fit(trainer_, &callbacks, 0, nullptr), ONNXTRAIN_INVALID_ARGUMENT, "next_batch is null");
  callbacks.next_batch = NextBatch;
  EXPECT_API_FAILS(Api().EvaluateAll(trainer_, &callbacks, nullptr, &metric), ONNXTRAIN_INVALID_ARGUMENT, "metric");
}

TEST_F(CApiCallbacks, ViewsFollowTheUpdates) {
  OnnxtrainTensor view;
  EXPECT_API_OK(Api().ViewParameter(trainer_, "w1", &view));
  EXPECT_EQ(std::string(view.name), "w1");
  ASSERT_EQ(view.bytes, 4u * 16 * sizeof(float));
  const auto copy = [&] {
    OnnxtrainTensors* tensors = nullptr;
    OnnxtrainTensor t;
    EXPECT_API_OK(Api().GetParameters(trainer_, "w1", &tensors));
    EXPECT_EQ(Api().GetTensorCount(tensors), 1u);
    EXPECT_API_OK(Api().GetTensor(tensors, 0, &t));
    std::string bytes(static_cast<const char*>(t.data), t.bytes);
    Api().ReleaseTensors(tensors);
    return bytes;
  };
  const auto shown = [&] { return std::string(static_cast<const char*>(view.data), view.bytes); };
  const std::string before = shown();
  EXPECT_EQ(copy(), before);
  BlobBatch batch(24);
  EXPECT_API_OK(Api().TrainStep(trainer_, batch.data(), batch.size(), nullptr));
  EXPECT_NE(shown(), before);
  EXPECT_EQ(copy(), shown());
  EXPECT_API_FAILS(Api().ViewParameter(trainer_, "$applied", &view), ONNXTRAIN_NOT_FOUND, "$applied");
  EXPECT_API_FAILS(Api().GetParameters(trainer_, "none", nullptr), ONNXTRAIN_INVALID_ARGUMENT, "out is null");
  EXPECT_API_FAILS(Api().ViewParameter(trainer_, "none", &view), ONNXTRAIN_NOT_FOUND, "none");
}

}  // namespace
}  // namespace onnxtrain
