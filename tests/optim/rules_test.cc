// Replays recorded gradients through the `apply` graph of each rule on both backends, against its formula in plain
// loops over doubles. (torch_rules_test.cc compares with PyTorch.)
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "optim/step/rules/rule.h"
#include "tests/optim/replay.h"

namespace onnxtrain {
namespace {

constexpr int kRows = 3, kColumns = 4, kSize = kRows * kColumns;
constexpr int kSteps = 200;
const Shape kShape = {kRows, kColumns};

Vector GradientAt(int step) {
  Vector g(kSize);
  for (int i = 0; i < kSize; ++i) g[i] = std::sin(1.7 * step + 0.9 * i) * (1 + 0.3 * i) * std::exp(-0.01 * step);
  return g;
}

Vector Start() {
  Vector p(kSize);
  for (int i = 0; i < kSize; ++i) p[i] = 0.5 - 0.13 * i;
  return p;
}

// State of the reference rules; each uses what it needs.
struct Memory {
  Vector p = Start(), a = Vector(kSize), b = Vector(kSize);
};
using Reference = std::function<void(Memory& m, const Vector& g, int t)>;  // t from 1

double Norm(const Vector& x) {
  double square = 0;
  for (double v : x) square += v * v;
  return std::sqrt(square);
}

void ExpectFollows(const OptimizerSpec& optimizer, double decay, const Reference& reference) {
  for (const char* backend : {"cpu", "torch"}) {
    for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
      Replay replay(backend, {dtype, optimizer, {}}, decay, kShape, Start());
      Memory memory;
      for (int t = 1; t <= kSteps; ++t) {
        Vector g = GradientAt(t);
        replay.Step(g);
        const double clip = optimizer.max_grad_norm > 0 ? std::min(1.0, optimizer.max_grad_norm / (Norm(g) + 1e-6)) : 1;
        for (double& x : g) x *= clip;
        reference(memory, g, t);
        const HostTensor got = replay.Param();
        const double tolerance = dtype == DType::kFloat64 ? 1e-12 : 1e-5;
        for (int i = 0; i < kSize; ++i) {
          ASSERT_NEAR(got.At(i), memory.p[i], tolerance * std::max(1.0, std::fabs(memory.p[i])))
              << optimizer.rule << " on " << backend << " " << ToString(dtype) << " step " << t;
        }
      }
      EXPECT_EQ(replay.Get(device_scalar::kApplied).IntAt(0), kSteps);
      EXPECT_EQ(replay.Get(device_scalar::kSkipped).IntAt(0), 0);
    }
  }
}

TEST(Rules, Sgd) {
  ExpectFollows({.rule = "sgd", .lr = 0.05, .max_grad_norm = 0}, 0.01, [](Memory& m, const Vector& g, int) {
    for (int i = 0; i < kSize; ++i) m.p[i] -= 0.05 * (g[i] + 0.01 * m.p[i]);
  });
}

TEST(Rules, MomentumWithClipping) {
  for (bool nesterov : {false, true}) {
    const OptimizerSpec spec{.rule = "sgd", .lr = 0.05, .momentum = 0.9, .nesterov = nesterov, .max_grad_norm = 1};
    ExpectFollows(spec, 0, [=](Memory& m, const Vector& g, int) {
      for (int i = 0; i < kSize; ++i) {
        m.a[i] = 0.9 * m.a[i] + g[i];
        m.p[i] -= 0.05 * (nesterov ? g[i] + 0.9 * m.a[i] : m.a[i]);
      }
    });
  }
}

TEST(Rules, DampenedMomentum) {
  const OptimizerSpec spec{.rule = "sgd", .lr = 0.05, .momentum = 0.8, .dampening = 0.3, .max_grad_norm = 0};
  ExpectFollows(spec, 0, [](Memory& m, const Vector& g, int t) {
    for (int i = 0; i < kSize; ++i) {
      m.a[i] = t == 1 ? g[i] : 0.8 * m.a[i] + 0.7 * g[i];
      m.p[i] -= 0.05 * m.a[i];
    }
  });
}

// m̂ and √v̂ + ε after the moments were updated.
void AdamMoments(Memory& m, const Vector& g, int t, double eps, Vector* mean, Vector* root) {
  for (int i = 0; i < kSize; ++i) {
    m.a[i] = 0.9 * m.a[i] + 0.1 * g[i];
    m.b[i] = 0.999 * m.b[i] + 0.001 * g[i] * g[i];
    (*mean)[i] = m.a[i] / (1 - std::pow(0.9, t));
    (*root)[i] = std::sqrt(m.b[i] / (1 - std::pow(0.999, t))) + eps;
  }
}

void AdamReference(Memory& m, const Vector& g, int t) {
  Vector mean(kSize), root(kSize);
  AdamMoments(m, g, t, 1e-8, &mean, &root);
  for (int i = 0; i < kSize; ++i) m.p[i] -= 0.01 * mean[i] / root[i];
}

TEST(Rules, Adam) {
  ExpectFollows({.rule = "adam", .lr = 0.01, .max_grad_norm = 0}, 0.1, [](Memory& m, Vector g, int t) {
    for (int i = 0; i < kSize; ++i) g[i] += 0.1 * m.p[i];
    AdamReference(m, g, t);
  });
}

TEST(Rules, AdamW) {
  ExpectFollows({.rule = "adamw", .lr = 0.01, .max_grad_norm = 0.5}, 0.1, [](Memory& m, const Vector& g, int t) {
    for (double& x : m.p) x *= 1 - 0.01 * 0.1;
    AdamReference(m, g, t);
  });
}

TEST(Rules, RmsProp) {
  for (double momentum : {0.0, 0.9}) {
    const OptimizerSpec spec{.rule = "rmsprop", .lr = 0.01, .momentum = momentum, .max_grad_norm = 0};
    ExpectFollows(spec, 0.01, [=](Memory& m, const Vector& gradient, int) {
      for (int i = 0; i < kSize; ++i) {
        const double g = gradient[i] + 0.01 * m.p[i];
        m.a[i] = 0.99 * m.a[i] + 0.01 * g * g;
        m.b[i] = momentum * m.b[i] + g / (std::sqrt(m.a[i]) + 1e-8);
        m.p[i] -= 0.01 * m.b[i];
      }
    });
  }
}

TEST(Rules, Adagrad) {
  ExpectFollows({.rule = "adagrad", .lr = 0.1, .max_grad_norm = 0}, 0, [](Memory& m, const Vector& g, int) {
    for (int i = 0; i < kSize; ++i) {
      m.a[i] += g[i] * g[i];
      m.p[i] -= 0.1 * g[i] / (std::sqrt(m.a[i]) + 1e-10);
    }
  });
}

TEST(Rules, Lion) {
  ExpectFollows({.rule = "lion", .lr = 0.003, .max_grad_norm = 0}, 0.1, [](Memory& m, const Vector& g, int) {
    for (int i = 0; i < kSize; ++i) {
      const double direction = 0.9 * m.a[i] + 0.1 * g[i];
      m.p[i] = m.p[i] * (1 - 0.003 * 0.1) - 0.003 * (direction > 0 ? 1 : direction < 0 ? -1 : 0);
      m.a[i] = 0.99 * m.a[i] + 0.01 * g[i];
    }
  });
}

TEST(Rules, Lamb) {
  ExpectFollows({.rule = "lamb", .lr = 0.02, .max_grad_norm = 0}, 0.1, [](Memory& m, const Vector& g, int t) {
    Vector u(kSize), root(kSize);
    AdamMoments(m, g, t, 1e-6, &u, &root);
    for (int i = 0; i < kSize; ++i) u[i] = u[i] / root[i] + 0.1 * m.p[i];
    const double ratio = Norm(m.p) / Norm(u);
    for (int i = 0; i < kSize; ++i) m.p[i] -= 0.02 * ratio * u[i];
  });
}

TEST(Rules, Lars) {
  ExpectFollows({.rule = "lars", .lr = 3, .max_grad_norm = 0}, 0.1, [](Memory& m, const Vector& g, int) {
    const double ratio = 0.001 * Norm(m.p) / (Norm(g) + 0.1 * Norm(m.p) + 1e-8);
    for (int i = 0; i < kSize; ++i) m.a[i] = 0.9 * m.a[i] + (g[i] + 0.1 * m.p[i]) * ratio;
    for (int i = 0; i < kSize; ++i) m.p[i] -= 3 * m.a[i];
  });
}

// Returns Adafactor's direction from the means of rows (a) and columns (b), with a root mean square of at most 1.
Vector AdafactorDirection(Memory& m, const Vector& g, int t) {
  const double keep = 1 - std::pow(t, -0.8);
  double mean = 0;
  for (int r = 0; r < kRows; ++r) {
    double sum = 0;
    for (int c = 0; c < kColumns; ++c) sum += g[r * kColumns + c] * g[r * kColumns + c] + 1e-30;
    m.a[r] = keep * m.a[r] + (1 - keep) * sum / kColumns;
    mean += m.a[r] / kRows;
  }
  for (int c = 0; c < kColumns; ++c) {
    double sum = 0;
    for (int r = 0; r < kRows; ++r) sum += g[r * kColumns + c] * g[r * kColumns + c] + 1e-30;
    m.b[c] = keep * m.b[c] + (1 - keep) * sum / kRows;
  }
  Vector u(kSize);
  for (int i = 0; i < kSize; ++i) u[i] = g[i] / std::sqrt(m.a[i / kColumns] / mean * m.b[i % kColumns]);
  const double clip = std::max(1.0, Norm(u) / std::sqrt(kSize));
  for (double& x : u) x /= clip;
  return u;
}

TEST(Rules, Adafactor) {
  ExpectFollows({.rule = "adafactor", .lr = 0.05, .max_grad_norm = 0}, 0.1, [](Memory& m, const Vector& g, int t) {
    const Vector u = AdafactorDirection(m, g, t);
    const double rate = std::min(0.05, 1 / std::sqrt(t)) * std::max(1e-3, Norm(m.p) / std::sqrt(kSize));
    for (int i = 0; i < kSize; ++i) m.p[i] -= rate * (u[i] + 0.1 * m.p[i]);
  });
}

// Neither the number of the update nor the weight changes the rate.
TEST(Rules, UnscaledAdafactor) {
  const OptimizerSpec spec{.rule = "adafactor_unscaled", .lr = 0.6, .max_grad_norm = 0};
  ExpectFollows(spec, 0.1, [](Memory& m, const Vector& g, int t) {
    const Vector u = AdafactorDirection(m, g, t);
    for (int i = 0; i < kSize; ++i) m.p[i] -= 0.6 * (u[i] + 0.1 * m.p[i]);
  });
}

// Unused inputs have zero gradients in whole rows and columns.
// Returns A·B of matrices [n,k] and [k,m].
Vector Multiply(const Vector& a, const Vector& b, int n, int k, int m) {
  Vector c(static_cast<size_t>(n) * m);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m; ++j) {
      for (int l = 0; l < k; ++l) c[i * m + j] += a[i * k + l] * b[l * m + j];
    }
  }
  return c;
}

// X ← aX + (bXXᵀ + c(XXᵀ)²)X, five times from X/‖X‖.
Vector NewtonSchulz(Vector x) {
  const double norm = Norm(x);
  for (double& v : x) v /= std::max(norm, 1e-7);
  for (int step = 0; step < 5; ++step) {
    Vector transposed(kSize);
    for (int i = 0; i < kSize; ++i) transposed[i % kColumns * kRows + i / kColumns] = x[i];
    Vector s = Multiply(x, transposed, kRows, kColumns, kRows);
    const Vector square = Multiply(s, s, kRows, kRows, kRows);
    for (size_t i = 0; i < s.size(); ++i) s[i] = -4.7750 * s[i] + 2.0315 * square[i];
    const Vector more = Multiply(s, x, kRows, kRows, kColumns);
    for (int i = 0; i < kSize; ++i) x[i] = 3.4445 * x[i] + more[i];
  }
  return x;
}

TEST(Rules, Muon) {
  const OptimizerSpec spec{.rule = "muon", .lr = 0.02, .max_grad_norm = 0};
  ExpectFollows(spec, 0.1, [](Memory& m, const Vector& g, int) {
    Vector direction(kSize);
    for (int i = 0; i < kSize; ++i) {
      m.a[i] = 0.95 * m.a[i] + 0.05 * g[i];
      direction[i] = 0.05 * g[i] + 0.95 * m.a[i];
    }
    direction = NewtonSchulz(direction);
    for (int i = 0; i < kSize; ++i) m.p[i] = m.p[i] * (1 - 0.02 * 0.1) - 0.02 * 0.2 * 2 * direction[i];
  });
}

// The order of operations of the authors' implementation, which keeps y and z: x = (y − (1 − β₁)·z)/β₁.
TEST(Rules, ScheduleFreeAdamW) {
  const ScheduleSpec schedule{.name = "constant", .warmup = 20, .total_steps = kSteps};
  const OptimizerSpec spec{.rule = "schedule_free_adamw", .lr = 0.02, .max_grad_norm = 0};
  for (const char* backend : {"cpu", "torch"}) {
    for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
      Replay replay(backend, {dtype, spec, schedule}, 0.1, kShape, Start());
      replay.Set(MomentName(kAverage, "w"), Start());
      Vector y = Start(), z = Start(), v(kSize);
      double sum = 0, most = 0;
      for (int t = 1; t <= kSteps; ++t) {
        Vector g = GradientAt(t);
        replay.Step(g);
        const double lr = 0.02 * ScheduleFactor(schedule, 0.02, t - 1);
        most = std::max(most, lr);
        sum += most * most;
        const double share = most * most / sum, tolerance = dtype == DType::kFloat64 ? 1e-12 : 1e-5;
        const HostTensor got = replay.Param(), average = replay.Get(MomentName(kAverage, "w"));
        for (int i = 0; i < kSize; ++i) {
          v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
          const double u = g[i] / (std::sqrt(v[i] / (1 - std::pow(0.999, t))) + 1e-8) + 0.1 * y[i];
          y[i] += share * (z[i] - y[i]) + lr * (0.9 * (1 - share) - 1) * u;
          z[i] -= lr * u;
          ASSERT_NEAR(got.At(i), y[i], tolerance) << backend << " " << ToString(dtype) << " step " << t;
          ASSERT_NEAR(average.At(i), (y[i] - 0.1 * z[i]) / 0.9, 2 * tolerance) << backend << " step " << t;
        }
      }
    }
  }
}

// A matrix and its transpose are updated alike.
TEST(Rules, MuonOfTransposes) {
  const UpdateSpec spec{DType::kFloat64, {.rule = "muon", .lr = 0.02, .max_grad_norm = 0}, {}};
  const auto transpose = [](const Vector& x) {
    Vector y(kSize);
    for (int i = 0; i < kSize; ++i) y[i % kColumns * kRows + i / kColumns] = x[i];
    return y;
  };
  Replay wide("cpu", spec, 0.1, kShape, Start()), tall("cpu", spec, 0.1, {kColumns, kRows}, transpose(Start()));
  for (int t = 1; t <= 20; ++t) {
    wide.Step(GradientAt(t));
    tall.Step(transpose(GradientAt(t)));
  }
  const Vector want = transpose(wide.Param().ToDoubles()), got = tall.Param().ToDoubles();
  for (int i = 0; i < kSize; ++i) EXPECT_NEAR(got[i], want[i], 1e-12);
}

// Embeddings and output layers have both moments of adamw, matrices one.
TEST(Rules, MuonUpdatesTablesByAdamW) {
  OptimizerSpec spec{.rule = "muon", .lr = 0.02, .max_grad_norm = 0};
  spec.tables = {"w"};
  ExpectFollows(spec, 0.1, [](Memory& m, const Vector& g, int t) {
    for (int i = 0; i < kSize; ++i) {
      m.a[i] = 0.9 * m.a[i] + 0.1 * g[i];
      m.b[i] = 0.999 * m.b[i] + 0.001 * g[i] * g[i];
      m.p[i] *= 1 - 0.02 * 0.1;
      m.p[i] -= 0.02 / (1 - std::pow(0.9, t)) * m.a[i] / (std::sqrt(m.b[i]) / std::sqrt(1 - std::pow(0.999, t)) + 1e-8);
    }
  });
  const RuleState& second = FindRule(spec)->state[1];
  EXPECT_EQ(second.Of(spec, "w", kShape), kShape);
  EXPECT_EQ(second.Of(spec, "hidden", kShape), Shape{});
  for (const Shape& vector : {Shape{kSize}, {1, kSize}, {1, 1, kSize}, {kSize, 1}, {0, kSize}})
    EXPECT_EQ(second.Of(spec, "hidden", vector), vector);
}

TEST(Rules, GradientsOfZeroAreHarmless) {
  for (const OptimizerRule* rule : NamedRules()) {
    Replay replay("cpu", {DType::kFloat32, {.rule = std::string(rule->name), .lr = 0.01}, {}}, 0.1, kShape, Start());
    for (int t = 1; t <= 20; ++t) {
      Vector g = GradientAt(t);
      for (int i = 0; i < kSize; ++i) {
        if (t % 5 == 0 || i / kColumns == 1 || i % kColumns == 2) g[i] = 0;
      }
      replay.Step(g);
    }
    const HostTensor param = replay.Param();
    for (int i = 0; i < kSize; ++i) EXPECT_TRUE(std::isfinite(param.At(i))) << rule->name << " " << i;
    EXPECT_EQ(replay.Get(device_scalar::kSkipped).IntAt(0), 0) << rule->name;
  }
}

// A zero vector can leave zero under rules that scale by its norm, and Adafactor does not factor vectors.
TEST(Rules, PerTensorRulesMoveZeros) {
  for (const OptimizerRule& rule : PerTensorRules()) {
    Graph graph;
    Builder b(&graph);
    const OptimizerSpec spec = Resolved({.rule = std::string(rule.name)});
    const Type type{DType::kFloat64, {3}};
    const Vector gradient = {1, -2, 3};
    RuleContext c{.param = b.Constant(HostTensor(type)),
                  .grad = b.Constant(HostTensor::FromDoubles(type, gradient)),
                  .state = {},
                  .lr = b.Scalar(DType::kFloat64, 0.1),
                  .step = b.Scalar(DType::kFloat64, 0),
                  .weight_decay = 0.1,
                  .spec = spec};
    b.set_fold_limit(1024);
    for (const RuleState& state : rule.state) {
      c.state.push_back(b.Constant(HostTensor({DType::kFloat64, state.Of(spec, "w", {3})})));
    }
    const Val updated = rule.update(c).param;
    ASSERT_TRUE(b.status().ok()) << b.status();
    ASSERT_NE(updated.constant(), nullptr) << rule.name;
    for (int i = 0; i < 3; ++i) {
      EXPECT_LT(updated.constant()->At(i) * (i == 1 ? -2 : 1), 0) << rule.name << " " << i;
    }
  }
}

TEST(Rules, NumbersThatAreNotGivenAreTheRules) {
  EXPECT_EQ(Resolved({.rule = "adamw"}).beta2, 0.999);
  EXPECT_EQ(Resolved({.rule = "lion"}).beta2, 0.99);
  EXPECT_EQ(Resolved({.rule = "lamb"}).eps, 1e-6);
  EXPECT_EQ(Resolved({.rule = "lars"}).momentum, 0.9);
  EXPECT_EQ(Resolved({.rule = "adamw", .beta1 = 0.5, .eps = 0}).beta1, 0.5);
  EXPECT_EQ(Resolved({.rule = "adamw", .beta1 = 0.5, .eps = 0}).eps, 0);
  EXPECT_EQ(FindRule({.rule = "sgd"})->name, "sgd");
  EXPECT_EQ(FindRule({.rule = "sgd", .momentum = 0.5})->name, "sgd_momentum");
  EXPECT_EQ(FindRule({.rule = "nadam"}), nullptr);
}

// The squares overflow float32, as does the square of the norm: the clipped update must keep the direction.
TEST(Apply, LargeFiniteGradientsStep) {
  for (const char* backend : {"cpu", "torch"}) {
    for (const OptimizerRule* rule : NamedRules()) {
      const UpdateSpec spec{DType::kFloat32, {.rule = std::string(rule->name), .lr = 0.01, .max_grad_norm = 1}, {}};
      Replay large(backend, spec, 0.1, kShape, Start()), small(backend, spec, 0.1, kShape, Start());
      for (int t = 1; t <= 3; ++t) {
        Vector g = GradientAt(t);
        for (double& x : g) x *= 1e3;  // still clipped
        small.Step(g);
        for (double& x : g) x *= 1e27;
        large.Step(g);
        EXPECT_NEAR(large.Get(device_scalar::kNorm).At(0) / (Norm(g)), 1, 1e-6) << rule->name << " on " << backend;
      }
      EXPECT_EQ(large.Get(device_scalar::kSkipped).IntAt(0), 0) << rule->name << " on " << backend;
      EXPECT_EQ(large.Get(device_scalar::kApplied).IntAt(0), 3) << rule->name << " on " << backend;
      const HostTensor got = large.Param(), want = small.Param();
      for (int i = 0; i < kSize; ++i)
        EXPECT_NEAR(got.At(i), want.At(i), 1e-6) << rule->name << " on " << backend << " " << i;
    }
  }
}

TEST(Apply, NonFiniteGradientChangesNothingButTheSkipCount) {
  for (double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    for (const OptimizerRule* rule : NamedRules()) {
      Replay replay("cpu", {DType::kFloat32, {.rule = std::string(rule->name), .lr = 0.01}, {}}, 0.1, kShape, Start());
      replay.Step(GradientAt(1));
      const std::set<std::string> changing = {device_scalar::kBatchLoss, device_scalar::kNorm, device_scalar::kSkipped,
                                              device_scalar::kSkippedInARow, replay.grad()};
      std::map<std::string, HostTensor> before;
      for (const std::string& name : replay.Names()) before[name] = replay.Get(name);
      Vector g = GradientAt(2);
      g[3] = bad;
      replay.Set(device_scalar::kBatchLoss, {bad});
      replay.Step(g);
      for (const std::string& name : replay.Names()) {
        if (changing.contains(name)) continue;
        EXPECT_TRUE(replay.Get(name).SameBytes(before.at(name))) << rule->name << " " << name;
      }
      EXPECT_EQ(replay.Get(device_scalar::kSkipped).IntAt(0), 1);
      EXPECT_EQ(replay.Get(device_scalar::kSkippedInARow).IntAt(0), 1);
    }
  }
}

}  // namespace
}  // namespace onnxtrain
