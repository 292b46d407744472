// Moments of 8 bits and weights of 16: the updates on both backends against the same arithmetic in float64.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "frontend/graph/small_types.h"
#include "optim/step/program/stored_weights.h"
#include "tests/optim/replay.h"

namespace onnxtrain::low_memory {
namespace {

constexpr int64_t kSize = 9000;  // 35 blocks and a part of one
const Shape kShape = {90, 100};
constexpr int kSteps = 40;

// Elements differ by orders of magnitude; blocks 3 and 4 have no gradient.
Vector GradientAt(int step) {
  Vector g(kSize);
  for (int i = 0; i < kSize; ++i) {
    const bool none = i / 256 == 3 || i / 256 == 4;
    g[i] = none ? 0 : std::sin(1.7 * step + 0.9 * i) * std::exp(-(i % 17) * 0.5);
  }
  return g;
}

Vector Start() {
  Vector p(kSize);
  for (int i = 0; i < kSize; ++i) p[i] = std::sin(0.37 * i);
  return p;
}

// The values of the code by its definition, ascending.
std::vector<double> DynamicMap(bool is_signed) {
  std::vector<double> values = {0, 1};
  for (int exponent = -6; exponent <= 0; ++exponent) {
    const int intervals = (is_signed ? 1 : 2) << (exponent + 6);
    for (int i = 0; i < intervals; ++i) {
      const auto value = static_cast<float>(std::pow(10.0, exponent) * (0.1 + 0.9 * (i + 0.5) / intervals));
      values.push_back(value);
      if (is_signed) values.push_back(-double{value});
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

// Replaces numbers by what their codes stand for.
void Quantize(Vector* x, bool is_signed) {
  static const std::vector<double> maps[] = {DynamicMap(false), DynamicMap(true)};
  const std::vector<double>& map = maps[is_signed ? 1 : 0];
  for (size_t begin = 0; begin < x->size(); begin += 256) {
    const size_t end = std::min(x->size(), begin + 256);
    double most = 0;
    for (size_t i = begin; i < end; ++i) most = std::max(most, std::fabs((*x)[i]));
    for (size_t i = begin; i < end && most > 0; ++i) {
      const double number = (*x)[i] / most;
      const auto above = std::lower_bound(map.begin(), map.end(), number);
      double value = above == map.begin() ? *above : number - above[-1] < *above - number ? above[-1] : *above;
      if (!is_signed && number > 0) value = std::max(value, map[1]);
      (*x)[i] = value * most;
    }
  }
}

struct Moments {
  Vector p = Start(), m = Vector(kSize), v = Vector(kSize);
};

void AdamW(Moments* s, const Vector& g, int t) {
  for (int i = 0; i < kSize; ++i) {
    s->m[i] = 0.9 * s->m[i] + 0.1 * g[i];
    s->v[i] = 0.999 * s->v[i] + 0.001 * g[i] * g[i];
    const double mean = s->m[i] / (1 - std::pow(0.9, t)), root = std::sqrt(s->v[i] / (1 - std::pow(0.999, t)));
    s->p[i] = s->p[i] * (1 - 0.01 * 0.1) - 0.01 * mean / (root + 1e-8);
  }
}

void Lion(Moments* s, const Vector& g, int) {
  for (int i = 0; i < kSize; ++i) {
    const double direction = 0.9 * s->m[i] + 0.1 * g[i];
    s->p[i] = s->p[i] * (1 - 0.01 * 0.1) - 0.01 * (direction > 0 ? 1 : direction < 0 ? -1 : 0);
    s->m[i] = 0.99 * s->m[i] + 0.01 * g[i];
  }
}

double Distance(const HostTensor& a, const Vector& b) {
  double square = 0;
  for (size_t i = 0; i < b.size(); ++i) square += std::pow(a.At(static_cast<int64_t>(i)) - b[i], 2);
  return std::sqrt(square);
}

TEST(EightBitMoments, FollowTheirDefinition) {
  for (const char* backend : {"cpu", "torch"}) {
    for (const bool adam : {true, false}) {
      const OptimizerSpec spec{.rule = adam ? "adamw8bit" : "lion8bit", .lr = 0.01, .max_grad_norm = 0};
      Replay replay(backend, {DType::kFloat64, spec, {}}, 0.1, kShape, Start());
      Moments want;
      for (int t = 1; t <= kSteps; ++t) {
        replay.Step(GradientAt(t));
        adam ? AdamW(&want, GradientAt(t), t) : Lion(&want, GradientAt(t), t);
        Quantize(&want.m, true);
        Quantize(&want.v, false);
        ASSERT_LT(Distance(replay.Param(), want.p), 1e-9) << spec.rule << " on " << backend << " step " << t;
      }
    }
  }
}

// Codes are the nearest ones, so that float32 differs where rounding crosses the middle between two values only.
TEST(EightBitMoments, StayNearMomentsOfFloats) {
  for (const char* backend : {"cpu", "torch"}) {
    Replay replay(backend, {DType::kFloat32, {.rule = "adamw8bit", .lr = 0.01, .max_grad_norm = 0}, {}}, 0.1, kShape,
                  Start());
    Moments coded, plain;
    for (int t = 1; t <= kSteps; ++t) {
      replay.Step(GradientAt(t));
      AdamW(&coded, GradientAt(t), t);
      Quantize(&coded.m, true);
      Quantize(&coded.v, false);
      AdamW(&plain, GradientAt(t), t);
    }
    const HostTensor start = HostTensor::FromDoubles({DType::kFloat64, kShape}, Start());
    const double moved = Distance(start, plain.p);
    EXPECT_LT(Distance(replay.Param(), coded.p), 1e-3 * moved) << backend;
    EXPECT_LT(Distance(replay.Param(), plain.p), 0.1 * moved) << backend;
  }
}

TEST(EightBitMoments, SkippedUpdatesAndEmptyBlocks) {
  for (const char* backend : {"cpu", "torch"}) {
    Replay replay(backend, {DType::kFloat32, {.rule = "adamw8bit", .lr = 0.01}, {}}, 0, kShape, Start());
    for (int t = 1; t <= 3; ++t) replay.Step(GradientAt(t));
    EXPECT_EQ(replay.Get("$exp_avg_sq_scale:w").At(3), 0) << backend;
    EXPECT_EQ(replay.Get("$exp_avg:w").IntAt(3 * 256), 127) << backend;
    EXPECT_EQ(replay.Param().At(3 * 256), static_cast<float>(Start()[3 * 256])) << backend;
    for (const double bad : {std::nan(""), HUGE_VAL}) {
      std::map<std::string, HostTensor> before;
      for (const char* name : {"w", "$exp_avg:w", "$exp_avg_scale:w", "$exp_avg_sq:w", "$exp_avg_sq_scale:w"})
        before[name] = replay.Get(name);
      Vector gradient = GradientAt(4);
      gradient[1000] = bad;
      replay.Step(gradient);
      for (const auto& [name, value] : before) EXPECT_TRUE(replay.Get(name).SameBytes(value)) << name << backend;
    }
    EXPECT_EQ(replay.Get(device_scalar::kSkipped).IntAt(0), 2) << backend;
  }
}

TEST(EightBitMoments, TablesAndSmallTensorsHaveFloats) {
  const OptimizerSpec spec{.rule = "adamw8bit", .tables = {"embedding"}};
  const RuleState& state = FindRule(spec)->state[0];
  const auto stored = state.Stored(spec, "w", {64, 65}, DType::kFloat32);
  ASSERT_EQ(stored.size(), 2u);
  EXPECT_EQ(stored[0].type, (Type{DType::kUInt8, {64, 65}}));
  EXPECT_EQ(stored[1].type, (Type{DType::kFloat32, {17}}));
  EXPECT_EQ(state.Stored(spec, "embedding", {64, 65}, DType::kFloat32).size(), 1u);
  EXPECT_EQ(state.Stored(spec, "w", {63, 65}, DType::kFloat32).size(), 1u);
}

// Applies updates of w [kSize] by w + d, and returns w. Each update is lost where it is rounded to the nearest.
class Bf16Weight {
 public:
  Bf16Weight(const std::string& backend, uint64_t seed)
      : backend_(CreateBackend(backend, TestOptions(backend, 1)).value()) {
    Graph graph;
    Builder b(&graph);
    const Val w = b.Input(InputKind::kState, "w", {DType::kFloat32, {kSize}});
    const Val d = b.Input(InputKind::kState, "d", {DType::kFloat32, {kSize}});
    const Val step = b.Input(InputKind::kState, device_scalar::kApplied, {DType::kInt64, {}});
    graph.AddOutput("w_new", (w + d).id(), w.id());
    graph.AddOutput(device_scalar::kApplied, (step + 1.0).id(), step.id());
    EXPECT_TRUE(b.status().ok());
    const Region region{{}, {DType::kBFloat16, {kSize}}};
    const auto adapted = AdaptToStoredWeights(
        graph, [&](const std::string& name) { return name == "w" ? &region : nullptr; }, seed);
    EXPECT_TRUE(adapted.ok() && Verify(*adapted).ok()) << adapted.status();
    program_ = BoundProgram::Make(*backend_, backend_->Legalize(*adapted).value()).value();
  }

  void Set(const std::string& name, double value) {
    const DType dtype = name == "w" ? DType::kBFloat16 : DType::kFloat32;
    EXPECT_TRUE(program_->Set(name, HostTensor::Filled({dtype, {kSize}}, value)).ok());
  }
  void Step() { EXPECT_TRUE(program_->Run().ok()); }
  HostTensor Get() { return program_->Get("w").value(); }
  double Mean() {
    double sum = 0;
    const HostTensor w = Get();
    for (int64_t i = 0; i < kSize; ++i) sum += w.At(i) / kSize;
    return sum;
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::optional<BoundProgram> program_;
};

TEST(StochasticRounding, KeepsSmallUpdatesOnAverage) {
  for (const char* backend : {"cpu", "torch"}) {
    Bf16Weight weight(backend, 42);
    const double ulp = 1.0 / 128, change = ulp / 20;  // near 1
    ASSERT_EQ(HostTensor::Filled({DType::kFloat32, {1}}, 1 + change).CastTo(DType::kBFloat16).At(0), 1);
    weight.Set("w", 1);
    weight.Set("d", change);
    for (int t = 0; t < 50; ++t) weight.Step();
    // A step rounds up with probability 1/20: the variance is 50 · 1/20 · 19/20 · ulp² for each element.
    const double deviation = std::sqrt(50 * 0.05 * 0.95 / kSize) * ulp;
    EXPECT_NEAR(weight.Mean(), 1 + 50 * change, 4 * deviation) << backend;
    EXPECT_GT(weight.Mean(), 1.01);
  }
}

TEST(StochasticRounding, KeepsRepresentableNumbers) {
  for (const char* backend : {"cpu", "torch"}) {
    Bf16Weight weight(backend, 42);
    weight.Set("d", 0);
    for (const double x : {1.0, -0.3359375, 0.0, 3e38, HUGE_VAL}) {
      weight.Set("w", x);
      const HostTensor before = weight.Get();
      weight.Step();
      EXPECT_TRUE(weight.Get().SameBytes(before)) << backend << " " << x;
    }
  }
}

TEST(StochasticRounding, DependsOnSeedAndStepAlone) {
  const auto run = [](const char* backend, uint64_t seed, int skipped) {
    Bf16Weight weight(backend, seed);
    weight.Set("d", 0);
    for (int t = 0; t < skipped; ++t) weight.Step();
    weight.Set("w", 1);
    weight.Set("d", 0.001);
    weight.Step();
    return weight.Get();
  };
  const HostTensor want = run("cpu", 42, 3);
  EXPECT_TRUE(run("cpu", 42, 3).SameBytes(want));
  EXPECT_TRUE(run("torch", 42, 3).SameBytes(want));
  EXPECT_FALSE(run("cpu", 43, 3).SameBytes(want));
  EXPECT_FALSE(run("cpu", 42, 4).SameBytes(want));
}

}  // namespace
}  // namespace onnxtrain::low_memory
