// Every operator case in every mode.
#include <algorithm>
#include <cmath>
#include <memory>

#include <gtest/gtest.h>

#include "exceptions.h"
#include "frontend/base/status.h"
#include "frontend/graph/text_form.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/row.h"
#include "frontend/passes/decompose.h"
#include "frontend/passes/mixed_precision.h"
#include "guarded.h"
#include "run.h"

namespace onnxtrain::cases {
namespace {

// The graph of a case with gradients.
Graph Joint(const Case& c, bool wide) {
  Graph graph = MakeGraph(c, wide);
  const absl::Status status = AddGradients(c, &graph);
  EXPECT_TRUE(status.ok()) << status;
  return graph;
}

bool HasGradient(const Case& c) { return !DifferentiableInputs(c).empty(); }
bool HasDecomposition(const Case& c) { return FindOp(c.op)->decompose != nullptr; }

// The graph with gradients, where the case has any.
Graph LargestGraph(const Case& c, bool wide) { return HasGradient(c) ? Joint(c, wide) : MakeGraph(c, wide); }

std::vector<Case> Select(const std::function<bool(const Case&)>& matches) {
  std::vector<Case> cases;
  std::ranges::copy_if(AllCases(), std::back_inserter(cases), matches);
  return cases;
}

// Every fixture is one selection of the cases, so that no test returns without a check.
class OpCase : public ::testing::TestWithParam<Case> {
 protected:
  const Case& c() const { return GetParam(); }
  Tensors Feeds(const Graph& graph, bool wide) const { return MakeFeeds(c(), graph, wide); }
};
class Gradient : public OpCase {};
class Decomposition : public OpCase {};
class DecompositionGradient : public OpCase {};

constexpr auto kCaseName = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Table, OpCase, ::testing::ValuesIn(AllCases()), kCaseName);
INSTANTIATE_TEST_SUITE_P(Table, Gradient, ::testing::ValuesIn(Select(HasGradient)), kCaseName);
INSTANTIATE_TEST_SUITE_P(Table, Decomposition, ::testing::ValuesIn(Select(HasDecomposition)), kCaseName);
INSTANTIATE_TEST_SUITE_P(Table, DecompositionGradient, ::testing::ValuesIn(Select([](const Case& c) {
                           return HasGradient(c) && HasDecomposition(c);
                         })),
                         kCaseName);

// What both must give for the test to go on.
#define ASSERT_VALUE(lhs, expr)                                                                \
  auto ONNXTRAIN_CONCAT(v_, __LINE__) = (expr);                                                \
  ASSERT_TRUE(ONNXTRAIN_CONCAT(v_, __LINE__).ok()) << ONNXTRAIN_CONCAT(v_, __LINE__).status(); \
  lhs = *std::move(ONNXTRAIN_CONCAT(v_, __LINE__))

TEST_P(OpCase, HasTypes) {
  for (bool wide : {false, true}) {
    const Graph graph = MakeGraph(c(), wide);
    ASSERT_FALSE(graph.outputs().empty()) << "the type rule refuses the case";
    EXPECT_TRUE(Verify(graph).ok()) << Verify(graph);
    const Graph largest = LargestGraph(c(), wide);
    EXPECT_TRUE(Verify(largest).ok()) << Verify(largest);
  }
}

TEST_P(OpCase, SurvivesItsTextForm) {
  const Graph graph = LargestGraph(c(), false);
  const std::string text = Print(graph);
  ASSERT_VALUE(const Graph back, Parse(text));
  EXPECT_EQ(Print(back), text);
  EXPECT_TRUE(Verify(back).ok()) << Verify(back);
}

constexpr std::string_view kBackends[] = {"torch", "cpu"};

TEST_P(OpCase, BackendsAgreeWithTheHost) {
  RunMode(Mode::kHost, c(), [this] {
    const Graph graph = MakeGraph(c(), true);
    const Tensors feeds = Feeds(graph, true);
    ASSERT_VALUE(const std::vector<HostTensor> host, Interpret(graph, feeds));
    for (std::string_view backend : kBackends) {
      ASSERT_VALUE(const Tensors got, RunOn(BackendNamed(backend), graph, feeds));
      for (size_t o = 0; o < host.size(); ++o) {
        EXPECT_TRUE(Near(got.at(StrCat("y", o)), host[o], 1e-12)) << backend << " output " << o;
      }
    }
  });
}

TEST_P(OpCase, CpuAgreesWithTorch) {
  const Graph graph = MakeGraph(c(), false);
  const Tensors feeds = Feeds(graph, false);
  ASSERT_VALUE(const Tensors torch, RunOn(BackendNamed("torch"), graph, feeds));
  ASSERT_VALUE(const Tensors cpu, RunOn(BackendNamed("cpu"), graph, feeds));
  ExpectNear(cpu, torch, c().f32);
}

TEST_P(Gradient, CpuAgreesWithTorch) {
  const Graph graph = Joint(c(), false);
  const Tensors feeds = Feeds(graph, false);
  ASSERT_VALUE(const Tensors torch, RunOn(BackendNamed("torch"), graph, feeds));
  ASSERT_VALUE(const Tensors cpu, RunOn(BackendNamed("cpu"), graph, feeds));
  ExpectNear(cpu, torch, c().f32);
}

TEST_P(OpCase, CpuAgreesWithTorchInFloat64) {
  const Graph graph = LargestGraph(c(), true);
  const Tensors feeds = Feeds(graph, true);
  ASSERT_VALUE(const Tensors torch, RunOn(BackendNamed("torch"), graph, feeds));
  ASSERT_VALUE(const Tensors cpu, RunOn(BackendNamed("cpu"), graph, feeds));
  ExpectNear(cpu, torch, 1e-11);
}

// The same with float64 as reference: both backends' float32 against what it should be.
TEST_P(OpCase, Float32AgreesWithFloat64) {
  const Graph narrow = LargestGraph(c(), false), wide = LargestGraph(c(), true);
  Tensors feeds = Feeds(narrow, false), wide_feeds;
  for (const auto& [name, value] : feeds) wide_feeds[name] = value.CastTo(wide.type(wide.FindInput(name)->value).dtype);
  ASSERT_VALUE(const Tensors got, RunOn(BackendNamed("torch"), narrow, feeds));
  ASSERT_VALUE(Tensors want, RunOn(BackendNamed("torch"), wide, wide_feeds));
  for (auto& [name, value] : want) value = value.CastTo(got.at(name).dtype());
  ExpectNear(got, want, c().f32);
}

// L = Σ dy·y, by hand.
double Loss(const Tensors& outputs, const Tensors& feeds, const std::vector<int>& through) {
  double loss = 0;
  for (int o : through) {
    const HostTensor &y = outputs.at(StrCat("y", o)), &dy = feeds.at(StrCat("dy", o));
    for (int64_t i = 0; i < y.size(); ++i) loss += y.At(i) * dy.At(i);
  }
  return loss;
}

// Central differences of the loss against one input's gradient, at up to 40 elements.
void ExpectSlopes(const Case& c, const std::string& name, const HostTensor& gradient, const Tensors& feeds,
                  BoundProgram& program) {
  double scale = 1e-3;
  for (int64_t i = 0; i < gradient.size(); ++i) scale = std::max(scale, std::fabs(gradient.At(i)));
  const int64_t stride = std::max<int64_t>(1, gradient.size() / 40);
  for (int64_t i = 0; i < gradient.size(); i += stride) {
    double loss[2];
    constexpr double kStep = 1e-5;
    for (int side : {0, 1}) {
      HostTensor moved = feeds.at(name).Clone();
      moved.Set(i, moved.At(i) + (side == 0 ? -kStep : kStep));
      ASSERT_TRUE(program.Set(name, moved).ok());
      ASSERT_VALUE(const Tensors outputs, Outputs(program));
      loss[side] = Loss(outputs, feeds, c.through);
    }
    EXPECT_NEAR(gradient.At(i), (loss[1] - loss[0]) / (2 * kStep), c.finite * scale) << name << " element " << i;
  }
  ASSERT_TRUE(program.Set(name, feeds.at(name)).ok());
}

TEST_P(Gradient, AgreesWithFiniteDifferences) {
  RunMode(Mode::kFinite, c(), [this] {
    const Graph joint = Joint(c(), true), forward = MakeGraph(c(), true);
    const Tensors feeds = Feeds(joint, true);
    for (std::string_view backend : kBackends) {
      SCOPED_TRACE(std::string(backend));
      ASSERT_VALUE(const Tensors exact, RunOn(BackendNamed(backend), joint, feeds));
      ASSERT_VALUE(BoundProgram program, Compiled(BackendNamed(backend), forward));
      for (const GraphInput& input : forward.inputs()) ASSERT_TRUE(program.Set(input.name, feeds.at(input.name)).ok());
      for (size_t input : DifferentiableInputs(c())) {
        ExpectSlopes(c(), StrCat("x", input), exact.at(StrCat("dx", input)), feeds, program);
      }
    }
  });
}

void ExpectSameBits(const Tensors& got, const Tensors& want) {
  for (const auto& [name, tensor] : want) {
    ASSERT_TRUE(got.at(name).type() == tensor.type()) << name;
    EXPECT_TRUE(std::ranges::equal(got.at(name).bytes(), tensor.bytes())) << name;
  }
}

// Values and gradients are the same bits whatever memory held before, and nothing beyond the operands is touched.
TEST_P(OpCase, CpuReadsOnlyWhatWasWritten) {
  const std::unique_ptr<Backend> guarded = Guarded(BackendNamed("cpu"));
  const Graph narrow = LargestGraph(c(), false);
  ASSERT_VALUE(const Graph low, MixedPrecision(narrow, DType::kBFloat16));
  for (const Graph* graph : {&narrow, &low}) {
    const Tensors feeds = Feeds(*graph, false);
    ASSERT_VALUE(const Tensors want, RunOn(BackendNamed("cpu"), *graph, feeds));
    ASSERT_VALUE(const Tensors got, RunOn(*guarded, *graph, feeds));
    ExpectSameBits(got, want);
  }
}

// Every node of the case's operator decomposed, and nothing else.
absl::StatusOr<Graph> Decomposed(const Case& c, const Graph& graph) {
  return DecomposeNodes(graph, [&c](const Graph&, const Node& node) { return node.op == c.op; });
}

TEST_P(Decomposition, AgreesWithTheKernel) {
  RunMode(Mode::kDecomposition, c(), [this] {
    const Graph fused = MakeGraph(c(), true);
    ASSERT_VALUE(Graph parts, Decomposed(c(), fused));
    for (const Node& node : parts.nodes()) EXPECT_NE(node.op, c().op);
    EXPECT_TRUE(Verify(parts).ok()) << Verify(parts);
    const Tensors feeds = Feeds(fused, true);
    ASSERT_VALUE(const Tensors whole, RunOn(BackendNamed("torch"), fused, feeds));
    ASSERT_VALUE(const Tensors split, RunOn(BackendNamed("torch"), parts, feeds));
    ExpectNear(split, whole, 1e-11);
  });
}

TEST_P(DecompositionGradient, AgreesWithTheKernel) {
  RunMode(Mode::kDecompositionGradient, c(), [this] {
    const Graph fused = Joint(c(), true);
    ASSERT_VALUE(Graph parts, Decomposed(c(), MakeGraph(c(), true)));
    const absl::Status status = AddGradients(c(), &parts);
    ASSERT_TRUE(status.ok()) << status;
    const Tensors feeds = Feeds(fused, true);
    ASSERT_VALUE(const Tensors whole, RunOn(BackendNamed("torch"), fused, feeds));
    ASSERT_VALUE(const Tensors split, RunOn(BackendNamed("torch"), parts, feeds));
    ExpectNear(split, whole, 1e-10);
  });
}

// The inputs are computed values that die in the node, so that its outputs may take over their places.
TEST_P(OpCase, MayRunInPlace) {
  const Graph plain = MakeGraph(c(), false);
  Graph copied;
  Builder b(&copied);
  std::vector<Val> inputs;
  for (size_t i = 0; i < c().inputs.size(); ++i) {
    const GraphInput* input = plain.FindInput(StrCat("x", i));
    const Type type = input == nullptr ? Type() : plain.type(input->value);
    inputs.push_back(input == nullptr
                         ? Val()
                         : b.Op("Expand", {b.Input(InputKind::kFeed, input->name, type)}, {{"shape", type.shape}}));
  }
  const std::vector<Val> outputs = b.Ops(c().op, inputs, c().attrs);
  ASSERT_TRUE(b.status().ok()) << b.status();
  for (size_t o = 0; o < outputs.size(); ++o) copied.AddOutput(StrCat("y", o), outputs[o].id());
  const Tensors feeds = Feeds(plain, false);
  for (std::string_view backend : {"torch", "cpu"}) {
    ASSERT_VALUE(const Tensors want, RunOn(BackendNamed(backend), plain, feeds));
    ASSERT_VALUE(const Tensors got, RunOn(BackendNamed(backend), copied, feeds));
    // Some of ATen's kernels for GPUs add up in any order.
    ExpectNear(got, want, BackendNamed(backend).device() == "cpu" ? 0 : c().f32);
  }
}

}  // namespace
}  // namespace onnxtrain::cases
