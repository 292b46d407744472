// Exponential moving average of the weights, against the formula in float64.
#include <cmath>

#include "tests/optim/replay.h"
#include "tests/test_device.h"

namespace onnxtrain {
namespace {

constexpr double kDecay = 0.9;

Vector MakeGradient(int t) {
  Vector g(6);
  for (size_t i = 0; i < g.size(); ++i) g[i] = std::sin(0.7 * static_cast<double>(t) + static_cast<double>(i));
  return g;
}

TEST(Average, FollowsTheWeights) {
  for (const char* backend : {"cpu", "torch"}) {
    for (const char* rule : {"adamw", "lamb"}) {  // flat group, per tensor
      Replay replay(backend, {DType::kFloat64, {.rule = rule, .lr = 0.05, .ema_decay = kDecay}, {}}, 0, {2, 3},
                    Vector(6, 1));
      const std::string name = MomentName(kAverage, rule == std::string("lamb") ? "w" : "g");
      Vector want(6, 0);  // the replay starts at 0, a session at the weights
      for (int t = 0; t < 200; ++t) {
        Vector gradient = MakeGradient(t);
        if (t % 50 == 7) gradient[2] = std::nan("");  // skipped: the average must not change
        replay.Step(gradient);
        for (size_t i = 0; i < want.size() && t % 50 != 7; ++i) {
          want[i] = kDecay * want[i] + (1 - kDecay) * replay.Param().At(static_cast<int64_t>(i));
        }
        const HostTensor got = replay.Get(name);
        for (size_t i = 0; i < want.size(); ++i)
          ASSERT_NEAR(got.At(static_cast<int64_t>(i)), want[i], 1e-13) << backend << " " << rule << " " << t;
      }
    }
  }
}

TEST(Average, ChangesPlacesWithTheWeights) {
  for (const char* name : {"cpu", "torch"}) {
    auto backend = CreateBackend(name, TestOptions(name, 1)).value();
    const Graph graph = BuildSwap(DType::kFloat32, {{"a", 100, {}, {}}, {"b", 3, {}, {}}});
    EXPECT_TRUE(Verify(graph).ok()) << Verify(graph);
    auto program = BoundProgram::Make(*backend, backend->Legalize(graph).value()).value();
    const auto fill = [&](const std::string& input, int64_t n, double value) {
      ASSERT_TRUE(program.Set(input, HostTensor::FromDoubles({DType::kFloat32, {n}}, Vector(n, value))).ok());
    };
    fill(ParamName("a"), 100, 1);
    fill(MomentName(kAverage, "a"), 100, 2);
    fill(ParamName("b"), 3, 3);
    fill(MomentName(kAverage, "b"), 3, 4);
    for (int times = 1; times <= 2; ++times) {
      ASSERT_TRUE(program.Run().ok());
      const bool swapped = times == 1;
      EXPECT_EQ(program.Get(ParamName("a")).value().At(99), swapped ? 2 : 1) << name;
      EXPECT_EQ(program.Get(MomentName(kAverage, "a")).value().At(99), swapped ? 1 : 2) << name;
      EXPECT_EQ(program.Get(ParamName("b")).value().At(2), swapped ? 4 : 3) << name;
      EXPECT_EQ(program.Get(MomentName(kAverage, "b")).value().At(2), swapped ? 3 : 4) << name;
    }
  }
}

}  // namespace
}  // namespace onnxtrain
