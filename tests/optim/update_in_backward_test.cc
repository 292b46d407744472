// Updates during the backward pass: the same numbers as after it, with fewer gradients in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "absl/strings/match.h"
#include "backends/registry.h"
#include "optim/step/session.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

constexpr int64_t kSamples = 8, kWidth = 96;
constexpr int kLayers = 6;

// Layers of MatMul → BatchNormalization → Dropout → Tanh, of which the first and the last but one share a weight.
tiny::Model Deep() {
  tiny::Model m = tiny::Mlp(3);
  m.nodes.clear();
  m.weights.clear();
  std::string h = "x";
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, std::vector<float> values) {
    m.weights.push_back({name, std::move(shape), std::move(values)});
    return name;
  };
  add("shared", {kWidth, kWidth}, tiny::Uniform(kWidth * kWidth, 0.2f, 77));
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string n = std::to_string(layer);
    const int64_t width = layer == 0 ? 4 : kWidth;
    const bool shared = layer == 1 || layer == kLayers - 1;
    const std::string w = shared ? "shared" : add("w" + n, {width, kWidth}, tiny::Uniform(width * kWidth, 0.2f, layer));
    std::vector<std::string> norm = {"p" + n};
    for (const auto& [name, value] : {std::pair("scale", 1.f), {"bias", 0.f}, {"mean", 0.f}, {"var", 1.f}})
      norm.push_back(add(name + n, {kWidth}, std::vector<float>(kWidth, value)));
    m.nodes.push_back({"MatMul", {h, w}, {"p" + n}});
    m.nodes.push_back({"BatchNormalization", norm, {"b" + n}});
    m.nodes.push_back({"Dropout", {"b" + n}, {"d" + n}});
    m.nodes.push_back({"Tanh", {"d" + n}, {h = "h" + n}});
  }
  m.nodes.push_back({"MatMul", {h, add("head", {kWidth, 3}, tiny::Uniform(3 * kWidth, 0.2f, 9))}, {"y"}});
  return m;
}

class UpdateInBackward : public Scratch {
 protected:
  UpdateInBackward() { Deep().Save(Path("m.onnx")); }

  absl::StatusOr<std::unique_ptr<Session>> Create(Backend* backend, SessionOptions options) {
    options.micro_batch = kSamples;
    if (!options.optimizer.in_backward) options.step_form = StepForm::kOneProgram;
    options.labels = {.present = true, .sample = {DType::kInt64, {}}, .min_value = 0, .max_value = 2};
    options.import.input_shapes["x"] = {-1, 4};
    return Session::Create(OnnxModel::Load(Path("m.onnx")).value(), backend, options);
  }

  static GlobalBatch MakeBatch(double scale) {
    HostTensor x({DType::kFloat32, {kSamples, 4}}), labels({DType::kInt64, {kSamples}});
    const std::vector<float> values = tiny::Uniform(kSamples * 4, 1, 5);
    for (int64_t i = 0; i < kSamples * 4; ++i) x.Set(i, scale * values[i]);
    for (int64_t i = 0; i < kSamples; ++i) labels.Set(i, static_cast<double>(i % 3));
    return {{"x", x}, {kLabelFeed, labels}};
  }

  static void ExpectSameState(Session& a, Session& b) {
    const auto of_a = a.State().value(), of_b = b.State().value();
    ASSERT_EQ(of_a.size(), of_b.size());
    for (size_t i = 0; i < of_a.size(); ++i) {
      const HostTensor x = ReadRegion(of_a[i].region).value(), y = ReadRegion(of_b[i].region).value();
      EXPECT_TRUE(std::ranges::equal(x.bytes(), y.bytes())) << of_a[i].name;
    }
  }
};

TEST_F(UpdateInBackward, ComputesTheSameBits) {
  for (const char* name : {"cpu", "torch"}) {
    const auto backend = CreateBackend(name, {.threads = 1}).value();
    for (const char* rule : {"adamw", "adafactor"}) {
      for (const double norm : {0.0, 0.5}) {
        SCOPED_TRACE(testing::Message() << name << " " << rule << ", norm " << norm);
        OptimizerSpec spec{.rule = rule, .lr = 0.01, .max_grad_norm = norm, .ema_decay = 0.9};
        const auto after = Create(backend.get(), {.optimizer = spec}).value();
        spec.in_backward = true;
        const auto during = Create(backend.get(), {.optimizer = spec}).value();
        for (int step = 0; step < 3; ++step) {
          ASSERT_TRUE(after->Step(MakeBatch(1)).ok() && during->Step(MakeBatch(1)).ok());
          const StepReport a = after->Report().value(), b = during->Report().value();
          EXPECT_EQ(a.loss, b.loss);
          EXPECT_EQ(a.grad_norm, b.grad_norm);
        }
        ExpectSameState(*after, *during);
      }
    }
  }
}

// A gradient that is not finite changes nothing but statistics, which have seen the samples.
TEST_F(UpdateInBackward, SkipsWhatIsNotFinite) {
  const auto backend = CreateBackend("cpu", {.threads = 1}).value();
  for (const double norm : {0.0, 1.0}) {
    const auto session = Create(backend.get(), {.optimizer = {.max_grad_norm = norm, .in_backward = true}}).value();
    const auto before = session->Weights().value();
    ASSERT_TRUE(session->Step(MakeBatch(std::numeric_limits<double>::infinity())).ok());
    EXPECT_EQ(session->Report().value().skipped, 1);
    const auto now = session->Weights().value();
    for (const WeightDecision& w : session->weights()) {
      if (!w.trained) continue;
      EXPECT_TRUE(std::ranges::equal(before.at(w.name).bytes(), now.at(w.name).bytes())) << w.name;
    }
  }
}

// With one sample, gradients are nearly all of the arena.
TEST_F(UpdateInBackward, KeepsFewGradients) {
  for (const char* name : {"cpu", "torch"}) {
    const auto backend = CreateBackend(name, {.threads = 1}).value();
    int64_t arena[2];
    for (const bool during : {false, true}) {
      const auto session = Create(backend.get(), {.optimizer = {.in_backward = during}, .plan_only = true}).value();
      ASSERT_TRUE(session->Plan(kSamples).ok());
      arena[during] = session->memory().activations;
      EXPECT_EQ(session->memory().gradients, 0);
    }
    constexpr int64_t kMatrix = kWidth * kWidth * sizeof(float);
    EXPECT_LE(arena[1], arena[0] - 2 * kMatrix) << name;
  }
}

TEST_F(UpdateInBackward, IsRefusedWhereGradientsAreSummed) {
  const auto backend = CreateBackend("cpu", {.threads = 1}).value();
  const auto session = Create(backend.get(), {.optimizer = {.in_backward = true}, .deterministic = true});
  EXPECT_TRUE(absl::StrContains(session.status().message(), "`optimizer_in_backward`")) << session.status();
}

}  // namespace
}  // namespace onnxtrain
