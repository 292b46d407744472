// Each rule replays a recorded sequence of gradients, as the `apply` graph, against the formulas written out in plain
// loops over doubles.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "frontend/ops/check.h"
#include "frontend/ops/interpret.h"
#include "optim/training_graph.h"

namespace onnxtrain {
namespace {

constexpr int kSize = 5;
constexpr int kSteps = 60;
using Vector = std::vector<double>;

Vector GradientAt(int step) {
  Vector g(kSize);
  for (int i = 0; i < kSize; ++i) g[i] = std::sin(1.7 * step + 0.9 * i) * (1 + i) * std::exp(-0.02 * step);
  return g;
}

// Runs the apply graph for kSteps updates, as a session would: outputs go where their `into` says.
struct Replay {
  std::map<std::string, HostTensor> memory;
  Graph graph;

  Replay(const UpdateSpec& spec, double decay) {
    auto built = BuildApply(spec, {{"g", kSize, {.weight_decay = decay}}}, 0);
    EXPECT_TRUE(built.ok()) << built.status();
    graph = *std::move(built);
    EXPECT_TRUE(Verify(graph).ok()) << Verify(graph);
    for (const GraphInput& input : graph.inputs()) memory[input.name] = HostTensor(graph.type(input.value));
    for (int i = 0; i < kSize; ++i) memory["param:g"].Set(i, 0.5 - 0.3 * i);
  }

  void Step(const Vector& gradient) {
    for (int i = 0; i < kSize; ++i) memory[GradName("g")].Set(i, gradient[i]);
    auto values = Interpret(graph, memory);
    ASSERT_TRUE(values.ok()) << values.status();
    for (size_t i = 0; i < values->size(); ++i) {
      memory[graph.inputs()[graph.value(graph.outputs()[i].into).index].name] = (*values)[i];
    }
  }
};

// p, state, g, t (from 1) → p, state.
using Reference = std::function<void(Vector& p, Vector& a, Vector& b, const Vector& g, int t)>;

void ExpectFollows(const OptimizerSpec& optimizer, double decay, const Reference& reference) {
  for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
    Replay replay({dtype, optimizer, {}}, decay);
    Vector p(kSize), a(kSize), b(kSize);
    for (int i = 0; i < kSize; ++i) p[i] = 0.5 - 0.3 * i;
    for (int t = 1; t <= kSteps; ++t) {
      Vector g = GradientAt(t);
      replay.Step(g);
      double norm = 0;
      for (double x : g) norm += x * x;
      norm = std::sqrt(norm);
      const double clip = optimizer.max_grad_norm > 0 ? std::min(1.0, optimizer.max_grad_norm / (norm + 1e-6)) : 1;
      for (double& x : g) x *= clip;
      reference(p, a, b, g, t);
      const double tolerance = dtype == DType::kFloat64 ? 1e-12 : 1e-5;
      for (int i = 0; i < kSize; ++i) {
        ASSERT_NEAR(replay.memory["param:g"].At(i), p[i], tolerance * std::max(1.0, std::fabs(p[i]))) << optimizer.rule << " step " << t;
      }
    }
    EXPECT_EQ(replay.memory[slot::kApplied].IntAt(0), kSteps);
    EXPECT_EQ(replay.memory[slot::kSkipped].IntAt(0), 0);
  }
}

TEST(Rules, Sgd) {
  const OptimizerSpec spec{.rule = "sgd", .lr = 0.05, .max_grad_norm = 0};
  ExpectFollows(spec, 0.01, [](Vector& p, Vector&, Vector&, const Vector& g, int) {
    for (int i = 0; i < kSize; ++i) p[i] -= 0.05 * (g[i] + 0.01 * p[i]);
  });
}

TEST(Rules, MomentumWithClipping) {
  for (bool nesterov : {false, true}) {
    const OptimizerSpec spec{.rule = "sgd", .lr = 0.05, .momentum = 0.9, .nesterov = nesterov, .max_grad_norm = 1};
    ExpectFollows(spec, 0, [=](Vector& p, Vector& m, Vector&, const Vector& g, int) {
      for (int i = 0; i < kSize; ++i) {
        m[i] = 0.9 * m[i] + g[i];
        p[i] -= 0.05 * (nesterov ? g[i] + 0.9 * m[i] : m[i]);
      }
    });
  }
}

void AdamReference(Vector& p, Vector& m, Vector& v, const Vector& g, int t, double lr) {
  for (int i = 0; i < kSize; ++i) {
    m[i] = 0.9 * m[i] + 0.1 * g[i];
    v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
    p[i] -= lr / (1 - std::pow(0.9, t)) * m[i] / (std::sqrt(v[i]) / std::sqrt(1 - std::pow(0.999, t)) + 1e-8);
  }
}

TEST(Rules, Adam) {
  const OptimizerSpec spec{.rule = "adam", .lr = 0.01, .max_grad_norm = 0};
  ExpectFollows(spec, 0.1, [](Vector& p, Vector& m, Vector& v, Vector g, int t) {
    for (int i = 0; i < kSize; ++i) g[i] += 0.1 * p[i];
    AdamReference(p, m, v, g, t, 0.01);
  });
}

TEST(Rules, AdamW) {
  const OptimizerSpec spec{.rule = "adamw", .lr = 0.01, .max_grad_norm = 0.5};
  ExpectFollows(spec, 0.1, [](Vector& p, Vector& m, Vector& v, const Vector& g, int t) {
    for (double& x : p) x *= 1 - 0.01 * 0.1;
    AdamReference(p, m, v, g, t, 0.01);
  });
}

TEST(Apply, NonFiniteGradientChangesNothingButTheSkipCount) {
  for (double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    Replay replay({DType::kFloat32, {.rule = "adamw", .lr = 0.01}, {}}, 0.1);
    replay.Step(GradientAt(1));
    const auto before = replay.memory;
    Vector g = GradientAt(2);
    g[3] = bad;
    replay.memory[slot::kWindowLoss].Set(0, bad);
    replay.Step(g);
    for (const char* name : {"param:g", "exp_avg:g", "exp_avg_sq:g", slot::kApplied, slot::kSumLoss, slot::kSumWeight}) {
      EXPECT_TRUE(replay.memory.at(name).SameBytes(before.at(name))) << name;
    }
    EXPECT_EQ(replay.memory[slot::kSkipped].IntAt(0), 1);
  }
}

}  // namespace
}  // namespace onnxtrain
