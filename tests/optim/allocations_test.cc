// Steps, reports and batches allocate nothing once everything has run before: this program counts calls of the
// allocator. The model has no matrix products, as oneDNN allocates argument lists whenever a primitive runs.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "backends/registry.h"
#include "optim/loop/trainer.h"
#include "optim/step/session.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ONNXTRAIN_COUNTS_ALLOCATIONS 0  // a sanitizer has an allocator of its own
#else
#define ONNXTRAIN_COUNTS_ALLOCATIONS 1
#endif

namespace {

std::atomic<int64_t> allocations = 0;

}  // namespace

#if ONNXTRAIN_COUNTS_ALLOCATIONS
// operator new ends here too.
extern "C" {
// NOLINTBEGIN(readability-identifier-naming): glibc chose these names.
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
// NOLINTEND(readability-identifier-naming)

void* malloc(size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* block, size_t size) {
  ++allocations;
  return __libc_realloc(block, size);
}
}
#endif

namespace onnxtrain {
namespace {

constexpr int64_t kSamples = 24;

// x[batch,4] · w + b + shift → Tanh → Dropout: four classes.
tiny::Model WithDropout() {
  tiny::Model m;
  m.more_inputs["shift"] = {-1, 4};
  m.weights = {{"w", {4}, tiny::Uniform(4, 0.5f, 1)}, {"b", {4}, tiny::Uniform(4, 0.1f, 2)}};
  m.nodes = {{"Mul", {"x", "w"}, {"p"}},
             {"Add", {"p", "b"}, {"s"}},
             {"Add", {"s", "shift"}, {"t"}},
             {"Tanh", {"t"}, {"r"}},
             {"Dropout", {"r"}, {"y"}}};
  return m;
}

class Allocations : public Scratch {
 protected:
  Allocations() { WithDropout().Save(Path("m.onnx")); }

  std::unique_ptr<Session> NewSession(SessionOptions options) {
    options.labels = {.present = true, .sample = {DType::kInt64, {}}, .min_value = 0, .max_value = 3};
    for (const char* input : {"x", "shift"}) options.import.input_shapes[input] = {-1, 4};
    auto session = Session::Create(OnnxModel::Load(Path("m.onnx")).value(), backend_.get(), options);
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }

  // Counts those of `steps` updates, with their reports, after a few others.
  int64_t Count(const SessionOptions& options, int steps) {
    const auto session = NewSession(options);
    const HostTensor half = HostTensor::Filled({DType::kFloat32, {kSamples, 4}}, 0.5);
    const GlobalBatch global_batch{{"x", half}, {"shift", half}, {kLabelFeed, HostTensor({DType::kInt64, {kSamples}})}};
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(session->Step(global_batch).ok() && session->Report().ok());
    const int64_t before = allocations;
    for (int i = 0; i < steps; ++i) {
      if (!session->Step(global_batch).ok() || !session->SkippedInARow().ok() || !session->Report().ok()) ADD_FAILURE();
    }
    return allocations - before;
  }

  std::unique_ptr<Backend> backend_ = CreateBackend("cpu", {.threads = 1}).value();
};

TEST_F(Allocations, AreSeen) {
  const int64_t before = allocations;
  const HostTensor tensor({DType::kFloat32, {4}});
  EXPECT_TRUE(!ONNXTRAIN_COUNTS_ALLOCATIONS || allocations > before);
}

TEST_F(Allocations, NoneInAStep) {
  for (const StepForm form : {StepForm::kOneProgram, StepForm::kMicroAndApply}) {
    for (const int64_t micro : {kSamples, kSamples / 2, int64_t{10}}) {
      SessionOptions options{.loss = {.class_weights = {1, 2, 3, 4}}, .micro_batch = micro, .step_form = form};
      EXPECT_EQ(Count(options, 5), 0) << "micro-batch " << micro
                                      << (form == StepForm::kOneProgram ? ", one program" : ", micro and apply");
    }
  }
  // A copy of the rates by weight would allocate.
  EXPECT_EQ(Count({.optimizer = {.in_backward = true, .lr_factors = {{"w", 2}}}, .micro_batch = kSamples}, 5), 0);
  SessionOptions scaled{.optimizer = {.max_grad_norm = 1},
                        .micro_batch = kSamples,
                        .compute = DType::kFloat16,
                        .loss_scale = LossScaleSpec{}};
  EXPECT_EQ(Count(scaled, 5), 0) << "float16 with a loss scale";
}

// Loader, feeds, steps and reports allocate only the order of the samples, once per epoch.
TEST_F(Allocations, NoneInTheTrainingLoop) {
  constexpr int64_t kPerEpoch = 21, kData = 10 * kPerEpoch - 5;  // the last batch of an epoch is short
  const HostTensor x = HostTensor::Filled({DType::kFloat32, {kData, 4}}, 0.5);
  const TrainData data{
      .dataset =
          InMemoryDataset("memory", {"x", "shift", "label"}, {x, x, HostTensor({DType::kInt64, {kData}})}).value(),
      .specs = {{.feed = "x", .columns = {0}, .sample = {DType::kFloat32, {4}}},
                {.feed = "shift", .columns = {1}, .sample = {DType::kFloat32, {4}}},
                {.feed = kLabelFeed, .columns = {2}, .sample = {DType::kInt64, {}}}}};
  for (const int workers : {0, 1, 3}) {
    const auto session = NewSession({.micro_batch = 10});
    const TrainOptions options{.batch_size = 10, .epochs = 6, .log_every = 1, .num_workers = workers};
    std::vector<int64_t> counts(6 * kPerEpoch + 1);
    struct Counter : TrainObserver {
      explicit Counter(std::vector<int64_t>* counts) : counts(*counts) {}
      void OnEvent(const TrainEvent& event) override { counts[event.step] = allocations; }
      std::vector<int64_t>& counts;
    } counter(&counts);
    const auto result = Train(*session, data, {}, options, counter);
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->steps, 6 * kPerEpoch);
    constexpr int64_t kEpochs = 4, kPerOrder = 4;  // that many epochs are counted, and the allocations of an order
    EXPECT_LE(counts[6 * kPerEpoch] - counts[2 * kPerEpoch], kEpochs * kPerOrder) << workers << " workers";
  }
}

}  // namespace
}  // namespace onnxtrain
