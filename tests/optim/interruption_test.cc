// A signal at any instant of an update: either the whole update is made, or nothing of it.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "backends/registry.h"
#include "frontend/base/cancellation.h"
#include "optim/record/checkpoint/resume.h"
#include "optim/step/session.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSamples = 512, kWidth = 64;

// Layers of MatMul → Tanh, with BatchNormalization before it if `normed`: many nodes, and running statistics.
tiny::Model Deep(bool normed) {
  tiny::Model m = tiny::Mlp(3);
  m.nodes.clear();
  m.weights.clear();
  std::string h = "x";
  const auto add_weight = [&](const std::string& name, std::vector<int64_t> shape, std::vector<float> values) {
    m.weights.push_back({name, std::move(shape), std::move(values)});
    return name;
  };
  for (int layer = 0; layer < 6; ++layer) {
    const std::string n = std::to_string(layer);
    const int64_t width = layer == 0 ? 4 : kWidth;
    const auto product = add_weight("w" + n, {width, kWidth}, tiny::Uniform(width * kWidth, 0.2f, layer));
    std::vector<std::string> norm = {"p" + n};
    for (const auto& [name, value] : {std::pair("scale", 1.f), {"bias", 0.f}, {"mean", 0.f}, {"var", 1.f}})
      if (normed) norm.push_back(add_weight(name + n, {kWidth}, std::vector<float>(kWidth, value)));
    m.nodes.push_back({"MatMul", {h, product}, {"p" + n}});
    if (normed) m.nodes.push_back({"BatchNormalization", norm, {"b" + n}});
    m.nodes.push_back({"Tanh", {(normed ? "b" : "p") + n}, {h = "h" + n}});
  }
  m.nodes.push_back({"MatMul", {h, add_weight("head", {kWidth, 3}, tiny::Uniform(3 * kWidth, 0.2f, 9))}, {"y"}});
  return m;
}

class Interruption : public Scratch {
 protected:
  // A step that is one program cannot be interrupted once it has updated running statistics.
  std::unique_ptr<Session> NewSession(Backend* backend, StepForm form) {
    Deep(form != StepForm::kOneProgram).Save(Path("m.onnx"));
    SessionOptions options{.optimizer = {.max_grad_norm = 1}, .micro_batch = kSamples / 2, .step_form = form};
    if (form == StepForm::kOneProgram) options.micro_batch = kSamples;
    options.labels = {.present = true, .sample = {DType::kInt64, {}}, .min_value = 0, .max_value = 2};
    options.import.input_shapes["x"] = {-1, 4};
    auto session = Session::Create(OnnxModel::Load(Path("m.onnx")).value(), backend, options);
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }

  static GlobalBatch MakeBatch() {
    HostTensor x({DType::kFloat32, {kSamples, 4}}), labels({DType::kInt64, {kSamples}});
    const std::vector<float> values = tiny::Uniform(kSamples * 4, 1, 5);
    for (int64_t i = 0; i < kSamples * 4; ++i) x.Set(i, values[i]);
    for (int64_t i = 0; i < kSamples; ++i) labels.Set(i, static_cast<double>(i % 3));
    return {{"x", x}, {kLabelFeed, labels}};
  }

  // The signal comes after `delay`, or is there already.
  static absl::Status StepWithSignal(Session& session, const GlobalBatch& batch, Clock::duration delay) {
    std::atomic<bool> signal = delay == Clock::duration(0);
    std::atomic<bool> done = false;
    const CancelScope scope(&signal);
    const Clock::time_point at = Clock::now() + delay;
    std::thread timer([&] {
      while (!done && Clock::now() < at) std::this_thread::yield();
      signal = true;
    });
    const absl::Status status = session.Step(batch);
    done = true;
    timer.join();
    return status;
  }

  const GlobalBatch batch_ = MakeBatch();
};

// Beside a session that no signal interrupts. The signal comes after 0, 1/20 … 19/20 of the time of an update.
TEST_F(Interruption, LeavesTheWholeUpdateOrNothing) {
  for (const auto& [name, form] : {std::pair("cpu", StepForm::kOneProgram),
                                   {"cpu", StepForm::kMicroAndApply},
                                   {"torch", StepForm::kOneProgram},
                                   {"torch", StepForm::kMicroAndApply}}) {
    const auto backend = CreateBackend(name, {.threads = 1});
    if (!backend.ok()) continue;  // a build without it
    const auto session = NewSession(backend->get(), form), whole = NewSession(backend->get(), form);
    int interrupted = 0;
    for (int step = 0; step < 40; ++step) {
      const auto before = whole->Weights().value();
      const auto begin = Clock::now();
      ASSERT_TRUE(whole->Step(batch_).ok());
      const Clock::duration delay = (Clock::now() - begin) * (step % 20) / 20;
      const bool first = step < 2;  // compiles
      const absl::Status status = first ? session->Step(batch_) : StepWithSignal(*session, batch_, delay);
      if (absl::IsCancelled(status)) {
        ++interrupted;
        const auto left = session->Weights().value();
        for (const auto& [weight, value] : left)
          EXPECT_TRUE(value.SameBytes(before.at(weight))) << name << " " << weight << " at " << step % 20 << "/20";
      }
      ASSERT_TRUE(status.ok() || (absl::IsCancelled(status) && session->Step(batch_).ok())) << status;
      ASSERT_TRUE(SaveSessionState(*session).value() == SaveSessionState(*whole).value()) << name << step;
    }
    EXPECT_GE(interrupted, 1) << name;  // that of step 20, and those that come in time
  }
}

}  // namespace
}  // namespace onnxtrain
