// Many tensors in few launches: batches of generated kernels, and sums of squares.
#include <gtest/gtest.h>

#include <algorithm>

#include "backends/torch/batches.h"
#include "backends/torch/fuse/fuse_graph.h"
#include "backends/torch/multi_tensor/multi_tensor.h"
#include "frontend/base/strings.h"
#include "frontend/graph/text_form.h"
#include "frontend/ops/row.h"
#include "frontend/passes/eliminate.h"
#include "test_backends.h"
#include "tests/ops/run.h"

namespace onnxtrain::aten {
namespace {

using cases::Tensors;

Tensors MakeFeeds(const Graph& graph) {
  Tensors feeds;
  for (const GraphInput& input : graph.inputs()) {
    cases::Rng rng(feeds.size() + 1);
    HostTensor tensor(graph.type(input.value));
    for (int64_t i = 0; i < tensor.size(); ++i) tensor.Set(i, rng.Uniform(0.1, 1));
    feeds[input.name] = std::move(tensor);
  }
  return feeds;
}

// Counts the launches of the kernels of another compiler.
class CountingCompiler : public KernelCompiler {
 public:
  absl::StatusOr<std::shared_ptr<CompiledKernel>> Compile(const GeneratedKernel& kernel) override {
    auto compiled = TestCompiler().Compile(kernel);
    if (!compiled.ok()) return compiled.status();
    return std::make_shared<CountingKernel>(*std::move(compiled), &launches_);
  }
  int launches() const { return launches_; }

 private:
  class CountingKernel : public CompiledKernel {
   public:
    CountingKernel(std::shared_ptr<CompiledKernel> kernel, int* launches)
        : kernel_(std::move(kernel)), launches_(launches) {}
    absl::Status Launch(std::span<void* const> pointers, int64_t blocks) override {
      ++*launches_;
      return kernel_->Launch(pointers, blocks);
    }

   private:
    const std::shared_ptr<CompiledKernel> kernel_;
    int* const launches_;
  };

  int launches_ = 0;
};

// Updates weights of these shapes, each with a moment, at one rate.
Graph MakeUpdates(const std::vector<Shape>& shapes) {
  Graph graph;
  Builder b(&graph);
  const Val rate = b.Input(InputKind::kFeed, "rate", {DType::kFloat32, {}});
  for (const Shape& shape : shapes) {
    const std::string name = StrCat("w", graph.inputs().size());
    const Type type{DType::kFloat32, shape};
    const Val w = b.Input(InputKind::kParameter, name, type), m = b.Input(InputKind::kState, name + ".m", type);
    const Val g = b.Input(InputKind::kFeed, name + ".g", type), moment = m * 0.9 + g * 0.1;
    graph.AddOutput(name, (w - rate * (moment / (Sqrt(moment) + 1e-3))).id(), w.id());
    graph.AddOutput(name + ".m", moment.id(), m.id());
  }
  EXPECT_TRUE(b.status().ok()) << b.status();
  return graph;
}

struct Launches {
  Tensors results;
  int count = 0;  // of one run
};

Launches RunCounted(const Graph& graph, const Tensors& feeds) {
  CountingCompiler compiler;
  const auto backend = MakeTorchBackend(TestDevice(), &compiler);
  Launches launches;
  auto program = cases::Compiled(*backend, graph);
  EXPECT_TRUE(program.ok()) << program.status();
  for (const auto& [name, value] : feeds) EXPECT_TRUE(program->Set(name, value).ok());
  const int before = compiler.launches();
  auto results = cases::Outputs(*program);
  EXPECT_TRUE(results.ok()) << results.status();
  launches.count = compiler.launches() - before;
  if (results.ok()) launches.results = *std::move(results);
  return launches;
}

void ExpectLaunches(const Graph& graph, int launches) {
  const Tensors feeds = MakeFeeds(graph);
  const auto want = cases::RunOn(PlainBackend(), graph, feeds);
  ASSERT_TRUE(want.ok()) << want.status();
  const Launches got = RunCounted(graph, feeds);
  cases::ExpectNear(got.results, *want, 1e-5);
  EXPECT_EQ(got.count, launches) << Print(graph);
}

// Whole vectors and rests, less than a vector, one block and several.
TEST(Batches, UpdateWeightsOfAllSizesAtOnce) {
  ExpectLaunches(MakeUpdates({{64, 32}, {3}, {7, 143}, {2}, {5, 1024}, {256}, {1025}}), 1);
}

// A single element is read as a scalar: another kernel.
TEST(Batches, ScalarsAreAnotherKernel) { ExpectLaunches(MakeUpdates({{64, 32}, {1}, {16}, {1, 1}}), 2); }

TEST(Batches, OperandsThatAreBroadcastStayAlone) {
  Graph graph;
  Builder b(&graph);
  for (const int64_t n : {4, 12}) {
    const Val x = b.Input(InputKind::kFeed, StrCat("x", n), {DType::kFloat32, {8, n}});
    const Val bias = b.Input(InputKind::kFeed, StrCat("b", n), {DType::kFloat32, {n}});
    graph.AddOutput(StrCat("y", n), (Exp(x + bias) * 2.0).id());
  }
  ExpectLaunches(graph, 2);
}

// What one writes, another reads: in their order.
TEST(Batches, StepsThatDependOnEachOtherStayApart) {
  Graph graph;
  Builder b(&graph);
  Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {40, 50}});
  for (int i = 0; i < 3; ++i) {
    // The transposition ends a kernel.
    x = Transpose(Tanh(x) * 2.0, {1, 0});
    graph.AddOutput(StrCat("y", i), x.id());
  }
  ExpectLaunches(graph, 3);
}

std::vector<std::vector<size_t>> FindRuns(const Graph& graph) {
  const MemoryPlan plan = PlanMemory(graph, {});
  return FindIndependentRuns(graph, plan, plan.order, [](const Node& node) { return node.op == "Exp"; });
}

using Runs = std::vector<std::vector<size_t>>;

TEST(Batches, IndependentRunsEndAtOtherOperatorsAndWhereBytesAreReused) {
  Graph apart;
  Builder b(&apart);
  std::vector<Val> x;
  for (int i = 0; i < 5; ++i) x.push_back(b.Input(InputKind::kFeed, StrCat("x", i), {DType::kFloat32, {8}}));
  for (int i = 0; i < 5; ++i) apart.AddOutput(StrCat("y", i), b.Op(i == 2 ? "Log" : "Exp", {x[i]}).id());
  EXPECT_EQ(FindRuns(apart), (Runs{{0, 1}, {3, 4}}));

  Graph chain;
  Builder c(&chain);
  const Val y = c.Input(InputKind::kFeed, "x", {DType::kFloat32, {8}});
  chain.AddOutput("y", Exp(Exp(Exp(y))).id());
  EXPECT_EQ(FindRuns(chain), Runs());

  // Weights in place: the second reads what the first writes.
  Graph in_place;
  Builder p(&in_place);
  const Val w = p.Input(InputKind::kState, "w", {DType::kFloat32, {8}});
  const Val v = p.Input(InputKind::kState, "v", {DType::kFloat32, {8}});
  const Val now = Exp(w);
  in_place.AddOutput("w", now.id(), w.id());
  in_place.AddOutput("v", Exp(v).id(), v.id());
  EXPECT_EQ(FindRuns(in_place), (Runs{{0, 1}}));
}

// The squared norm of all inputs and a number, as the clipping of gradients computes it.
Graph MakeNorm(const std::vector<Type>& types) {
  Graph graph;
  Builder b(&graph);
  Val sum = b.Scalar(DType::kFloat64, 0);
  for (const Type& type : types) {
    const Val x = b.Input(InputKind::kFeed, StrCat("x", graph.inputs().size()), type);
    sum = sum + b.Op("SquaredNorm", {x});
  }
  sum = sum + b.Input(InputKind::kFeed, "more", {DType::kFloat64, {}});
  graph.AddOutput("y", Sqrt(sum).id());
  EXPECT_TRUE(b.status().ok()) << b.status();
  return graph;
}

Graph FuseSums(const Graph& graph) {
  auto fused = FuseSumsOfSquares(graph);
  EXPECT_TRUE(fused.ok()) << fused.status();
  const Graph live = Dce(*fused);
  EXPECT_TRUE(Verify(live).ok()) << Verify(live);
  return live;
}

TEST(SumOfSquares, IsOneNode) {
  const Graph graph = MakeNorm({{DType::kFloat32, {300, 40}},
                                {DType::kFloat32, {7}},
                                {DType::kFloat32, {}},
                                {DType::kFloat32, {0, 3}},
                                {DType::kFloat64, {5}}});
  const Graph fused = FuseSums(graph);
  EXPECT_EQ(fused.nodes().size(), 3u) << Print(fused);  // with the sum with the number, and its root
  const Tensors feeds = MakeFeeds(graph);
  const auto want = cases::RunOn(PlainBackend(), graph, feeds), got = cases::RunOn(PlainBackend(), fused, feeds);
  ASSERT_TRUE(want.ok()) << want.status();
  ASSERT_TRUE(got.ok()) << got.status();
  cases::ExpectNear(*got, *want, 1e-12);
}

// Their squares are no numbers of float32.
TEST(SumOfSquares, AddsSquaresInFloat64) {
  const Graph graph = MakeNorm({{DType::kFloat32, {4}}, {DType::kFloat32, {4}}});
  Tensors feeds = MakeFeeds(graph);
  for (const char* name : {"x0", "x1"}) {
    for (int i = 0; i < 4; ++i) feeds[name].Set(i, 1e25);
  }
  const auto got = cases::RunOn(PlainBackend(), FuseSums(graph), feeds);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_NEAR(got->at("y").At(0) / (std::sqrt(8.0) * 1e25), 1, 1e-6);
}

// A sum that is read elsewhere keeps its value.
TEST(SumOfSquares, LeavesPartsThatOthersRead) {
  Graph graph;
  Builder b(&graph);
  std::vector<Val> squares;
  for (int i = 0; i < 4; ++i)
    squares.push_back(b.Op("SquaredNorm", {b.Input(InputKind::kFeed, StrCat("x", i), {DType::kFloat32, {6}})}));
  const Val part = squares[0] + squares[1];
  graph.AddOutput("part", part.id());
  graph.AddOutput("y", (part + squares[2] + squares[3]).id());
  const Graph fused = FuseSums(graph);
  EXPECT_EQ(std::ranges::count(fused.nodes(), kSumOfSquares, &Node::op), 2) << Print(fused);
  const Tensors feeds = MakeFeeds(graph);
  const auto want = cases::RunOn(PlainBackend(), graph, feeds), got = cases::RunOn(PlainBackend(), fused, feeds);
  ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
  cases::ExpectNear(*got, *want, 1e-12);
}

}  // namespace
}  // namespace onnxtrain::aten
