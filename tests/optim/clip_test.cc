// Clipping by value and adaptively, against the formulas in float64.
#include "optim/step/gradient_scaling.h"

#include <algorithm>
#include <cmath>

#include "tests/optim/replay.h"

namespace onnxtrain {
namespace {

const Shape kShape = {2, 3};
const Vector kStart = {0.5, -1, 2, 1e-5, 0, -2e-5}, kGradient = {3, -0.01, 4, 0.1, -0.2, 0.05};

// Returns the clipped gradient: the change of the weights by one SGD update with rate 1.
Vector Clipped(const char* backend, const OptimizerSpec& clip, const Shape& shape = kShape) {
  OptimizerSpec spec = clip;
  spec.rule = "sgd";
  spec.lr = 1;
  Replay replay(backend, {DType::kFloat64, spec, {}}, 0, shape, kStart);
  replay.Step(kGradient);
  const HostTensor after = replay.Param();
  Vector taken;
  for (size_t i = 0; i < kStart.size(); ++i) taken.push_back(kStart[i] - after.At(static_cast<int64_t>(i)));
  return taken;
}

double NormOver(const Vector& v, const std::vector<size_t>& at) {
  double sum = 0;
  for (size_t i : at) sum += v[i] * v[i];
  return std::sqrt(sum);
}

// timm.utils.agc, unit by unit.
Vector Adaptive(double ratio, const std::vector<std::vector<size_t>>& units) {
  Vector want = kGradient;
  for (const auto& unit : units) {
    const double most = ratio * std::max(NormOver(kStart, unit), 1e-3), norm = NormOver(kGradient, unit);
    for (size_t i : unit) want[i] *= norm < most ? 1 : most / std::max(norm, 1e-6);
  }
  return want;
}

void ExpectEqual(const Vector& got, const Vector& want) {
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12) << i;
}

TEST(Clip, ByValue) {
  for (const char* backend : {"cpu", "torch"}) {
    ExpectEqual(Clipped(backend, {.max_grad_norm = 0, .clip_value = 0.15}), {0.15, -0.01, 0.15, 0.1, -0.15, 0.05});
    Vector want = kGradient;  // after clipping by the global norm
    const double norm = NormOver(kGradient, {0, 1, 2, 3, 4, 5});
    for (double& g : want) g = std::clamp(g * 2 / (norm + 1e-6), -1.0, 1.0);
    ExpectEqual(Clipped(backend, {.max_grad_norm = 2, .clip_value = 1}), want);
  }
}

TEST(Clip, Adaptively) {
  for (const char* backend : {"cpu", "torch"}) {
    ExpectEqual(Clipped(backend, {.max_grad_norm = 0, .agc = 0.1}), Adaptive(0.1, {{0, 1, 2}, {3, 4, 5}}));
    ExpectEqual(Clipped(backend, {.max_grad_norm = 0, .agc = 0.1, .output_axes = {{"w", 1}}}),
                Adaptive(0.1, {{0, 3}, {1, 4}, {2, 5}}));
    ExpectEqual(Clipped(backend, {.max_grad_norm = 0, .agc = 0.5}, {6}), Adaptive(0.5, {{0, 1, 2, 3, 4, 5}}));
  }
}

TEST(Clip, OutputAxes) {
  Graph graph;
  Builder b(&graph);
  const auto weight = [&](const char* name) { return b.Input(InputKind::kParameter, name, {DType::kFloat32, {4, 4}}); };
  const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {2, 4}});
  graph.AddOutput("y", MatMul(MatMul(x, weight("plain")), weight("transposed"), false, true).id());
  EXPECT_EQ(OutputAxes(graph), (std::map<std::string, int64_t>{{"plain", 1}}));
}

}  // namespace
}  // namespace onnxtrain
