// A step that has run before allocates nothing: this program counts what is asked of the allocator. The model has no products, as
// oneDNN allocates some lists of arguments whenever a primitive runs.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "backends/registry.h"
#include "optim/session.h"
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
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);

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

// Four classes, of what four numbers times weights and with some dropped are; a second input that is added.
tiny::Model WithDropout() {
  tiny::Model m;
  m.more_inputs["shift"] = {-1, 4};
  m.weights = {{"w", {4}, tiny::Uniform(4, 0.5f, 1)}, {"b", {4}, tiny::Uniform(4, 0.1f, 2)}};
  m.nodes = {{"Mul", {"x", "w"}, {"p"}}, {"Add", {"p", "b"}, {"s"}}, {"Add", {"s", "shift"}, {"t"}}, {"Tanh", {"t"}, {"r"}}, {"Dropout", {"r"}, {"y"}}};
  return m;
}

class Allocations : public Scratch {
 protected:
  Allocations() { WithDropout().Save(Path("m.onnx")); }

  // In `steps` updates after a few others.
  int64_t Count(SessionOptions options, int steps) {
    const auto backend = CreateBackend("cpu", {.threads = 1}).value();
    options.labels = {.present = true, .sample = {DType::kInt64, {}}, .min_value = 0, .max_value = 3};
    for (const char* input : {"x", "shift"}) options.import.input_shapes[input] = {-1, 4};
    auto session = Session::Create(OnnxModel::Load(Path("m.onnx")).value(), backend.get(), options);
    EXPECT_TRUE(session.ok()) << session.status();
    Window window{.labels = HostTensor({DType::kInt64, {kSamples}})};
    for (const char* input : {"x", "shift"}) window.feeds[input] = HostTensor::Filled({DType::kFloat32, {kSamples, 4}}, 0.5);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE((*session)->Step(window).ok());
    const int64_t before = allocations;
    for (int i = 0; i < steps; ++i) {
      if (!(*session)->Step(window).ok() || !(*session)->SkippedInARow().ok()) ADD_FAILURE();
    }
    return allocations - before;
  }
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
      EXPECT_EQ(Count(options, 5), 0) << "micro-batch " << micro << (form == StepForm::kOneProgram ? ", one program" : ", micro and apply");
    }
  }
  SessionOptions scaled{.optimizer = {.max_grad_norm = 1}, .micro_batch = kSamples, .compute = DType::kFloat16, .loss_scale = LossScaleSpec{}};
  EXPECT_EQ(Count(scaled, 5), 0) << "scaled halves";
}

}  // namespace
}  // namespace onnxtrain
