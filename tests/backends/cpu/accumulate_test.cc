// Gradients that are added where the accumulated ones lie, against sums of their own.
#include <cmath>

#include "frontend/graph/text_form.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/host_eval.h"
#include "tests/backends/cpu/testing.h"

namespace onnxtrain {
namespace {

int64_t CountOps(const Graph& graph, std::string_view op) {
  return std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& n) { return n.op == op; });
}

Type F(Shape shape) { return {DType::kFloat32, std::move(shape)}; }

std::map<std::string, HostTensor> RandomInputs(const Graph& graph) {
  std::mt19937 random(3);
  std::map<std::string, HostTensor> inputs;
  for (const GraphInput& input : graph.inputs()) {
    const Type& type = graph.type(input.value);
    inputs[input.name] = RandomTensor(type, random, IsFloat(type.dtype) ? -1 : 0, IsFloat(type.dtype) ? 1 : 7);
  }
  return inputs;
}

// The outputs of `runs` runs, each on what the one before left, against the host's.
void CheckAgainstHost(const Graph& graph, BoundProgram program, double tolerance, int runs = 3) {
  std::map<std::string, HostTensor> inputs = RandomInputs(graph);
  for (const auto& [name, value] : inputs) ASSERT_TRUE(program.Set(name, value).ok()) << name;
  for (int run = 0; run < runs; ++run) {
    const auto want = Interpret(graph, inputs);
    ASSERT_TRUE(want.ok()) << want.status().message();
    ASSERT_TRUE(program.Run().ok());
    for (size_t o = 0; o < graph.outputs().size(); ++o) {
      const GraphOutput& output = graph.outputs()[o];
      const HostTensor got = program.Get(output.name).value();
      for (int64_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got.At(i), (*want)[o].At(i), tolerance) << output.name << " at " << i << " in run " << run;
      if (output.into != kNoValue) inputs[graph.inputs()[graph.value(output.into).index].name] = got;
    }
  }
}

// g += aᵀ·b, of halves where `dtype` is one.
Graph Accumulated(int64_t rows, int64_t m, int64_t n, DType dtype = DType::kFloat32) {
  Graph graph;
  Builder b(&graph);
  const Val g = b.Input(InputKind::kState, "g", F({m, n}));
  const Val x = b.Input(InputKind::kFeed, "a", {dtype, {rows, m}}),
            dy = b.Input(InputKind::kFeed, "b", {dtype, {rows, n}});
  graph.AddOutput("g", (g + Cast(MatMul(x, dy, true), DType::kFloat32)).id(), g.id());
  EXPECT_TRUE(b.status().ok()) << b.status().message();
  return graph;
}

TEST(CpuAccumulate, GemmAccumulatesInPlace) {
  const std::array<int64_t, 3> kSizes[] = {{64, 96, 80}, {2, 2, 768},     {1, 1, 1},
                                           {33, 65, 17}, {4100, 70, 130}, {700, 768, 300}};
  for (const auto& [rows, m, n] : kSizes) {
    const Graph graph = Accumulated(rows, m, n);
    BoundProgram program = CompileGraph(Cpu(), graph);
    EXPECT_EQ(CountOps(program.graph(), "Add"), 0) << Print(program.graph());
    EXPECT_EQ(CountOps(program.graph(), "cpu.MatMul"), 1) << Print(program.graph());
    CheckAgainstHost(graph, std::move(program), 2e-6 * std::sqrt(static_cast<double>(rows)) * 6);
  }
}

TEST(CpuAccumulate, ProductsOfHalvesAddInFloat32) {
  for (const auto& [rows, m, n] : {std::array<int64_t, 3>{64, 96, 80}, {5, 3, 7}, {1024, 200, 130}}) {
    const Graph graph = Accumulated(rows, m, n, DType::kBFloat16);
    BoundProgram program = CompileGraph(Cpu(), graph);
    if (CountOps(program.graph(), "cpu.MatMul") == 0) GTEST_SKIP() << "this processor multiplies no bf16";
    EXPECT_EQ(CountOps(program.graph(), "Add"), 0) << Print(program.graph());
    // The host rounds the product to bf16 before it adds.
    CheckAgainstHost(graph, std::move(program), 3 * 0.02 * std::sqrt(static_cast<double>(rows)), 3);
  }
}

TEST(CpuAccumulate, TheProductIsNeverInMemory) {
  const Graph graph = Accumulated(8, 1024, 1024);
  EXPECT_LT(CompileGraph(Cpu(), graph).program().memory().arena, graph.type(graph.inputs()[0].value).bytes() / 2);
}

// Whoever reads the old sum sees the old sum.
TEST(CpuAccumulate, NotWhereTheOldSumIsReadBeside) {
  Graph graph = Accumulated(16, 24, 24);
  Builder b(&graph);
  const Val old = b.Wrap(graph.inputs()[0].value);
  graph.AddOutput("of the old", (old * 2.0).id());
  CheckAgainstHost(graph, CompileGraph(Cpu(), graph), 1e-4);

  Graph own;
  Builder c(&own);
  const Val g = c.Input(InputKind::kState, "g", F({24, 24})), x = c.Input(InputKind::kFeed, "x", F({24, 24}));
  own.AddOutput("g", (g + MatMul(x, g, true) * 0.01).id(), g.id());
  CheckAgainstHost(own, CompileGraph(Cpu(), own), 1e-4);
  Graph bare;
  Builder d(&bare);
  const Val h = d.Input(InputKind::kState, "h", F({24, 24})), y = d.Input(InputKind::kFeed, "y", F({24, 24}));
  bare.AddOutput("h", (h + MatMul(y, h, true)).id(), h.id());
  CheckAgainstHost(bare, CompileGraph(Cpu(), bare), 2e-3, 2);
}

// Of a legalized product: the operands are not written over, nor a sum that is read later, whatever the planner may
// choose.
TEST(CpuAccumulate, ASumThatIsNeededLaterIsCopied) {
  std::mt19937 random(9);
  const auto product = [](bool fused) {
    Graph graph;
    Builder b(&graph);
    const Val x = b.Input(InputKind::kFeed, "x", F({32, 32})), w = b.Input(InputKind::kFeed, "w", F({32, 32}));
    const auto multiply = [&](Val a, Val old) {
      return fused ? b.Op("cpu.MatMul", {a, w, Val(), old}) : MatMul(a, w) + old;
    };
    const Val t = b.Op("Tanh", {x}), u = b.Op("Sigmoid", {x}), v = b.Op("Exp", {x});
    graph.AddOutput("dies here", multiply(u, t).id());  // t is read below
    graph.AddOutput("operand", multiply(v, v).id());    // what is added is multiplied, too
    graph.AddOutput("input", multiply(t, x).id());      // a feed
    graph.AddOutput("t", (t * 3.0).id());
    EXPECT_TRUE(b.status().ok()) << b.status().message();
    return graph;
  };
  const auto inputs = RandomInputs(product(false));
  const auto want = RunOnce(Cpu(), product(false), inputs);
  for (bool keep : {false, true}) {
    auto program = BoundProgram::Make(Cpu(), product(true), {.keep_values = keep});
    ASSERT_TRUE(program.ok()) << program.status().message();
    for (const auto& [name, value] : inputs) ASSERT_TRUE(program->Set(name, value).ok());
    ASSERT_TRUE(program->Run().ok());
    for (size_t o = 0; o < want.size(); ++o) {
      const HostTensor got = program->Get(product(true).outputs()[o].name).value();
      for (int64_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got.At(i), want[o].At(i), 1e-5) << o << " at " << i;
    }
  }
}

TEST(CpuAccumulate, GatherGradAccumulatesInPlace) {
  for (int64_t axis : {0, 1}) {
    Graph graph;
    Builder b(&graph);
    const Val g = b.Input(InputKind::kState, "g", F({7, 9})),
              index = b.Input(InputKind::kFeed, "index", {DType::kInt64, {4, 5}});
    const Val dy = b.Input(InputKind::kFeed, "dy", F(axis == 0 ? Shape{4, 5, 9} : Shape{7, 4, 5}));
    const Attrs attrs = {{"axis", axis}, {"input_shape", std::vector<int64_t>{7, 9}}};
    graph.AddOutput("g", (g + b.Op("GatherGrad", {dy, index}, attrs)).id(), g.id());
    BoundProgram program = CompileGraph(Cpu(), graph);
    EXPECT_EQ(CountOps(program.graph(), "cpu.GatherGradAdd"), 1) << Print(program.graph());
    EXPECT_EQ(CountOps(program.graph(), "Add"), 0);
    EXPECT_EQ(program.program().memory().arena, 0);
    CheckAgainstHost(graph, std::move(program), 1e-5);
  }
}

// Weights that are a table and the last product: one gradient is added to the other, where that lies.
TEST(CpuAccumulate, TiedWeights) {
  Graph graph;
  Builder b(&graph);
  const Val index = b.Input(InputKind::kFeed, "index", {DType::kInt64, {12}}),
            dy = b.Input(InputKind::kFeed, "dy", F({12, 9}));
  const Val x = b.Input(InputKind::kFeed, "x", F({12, 7}));
  const Val table =
      b.Op("GatherGrad", {dy, index}, {{"axis", int64_t{0}}, {"input_shape", std::vector<int64_t>{7, 9}}});
  graph.AddOutput("g", (MatMul(x, dy, true) + table).id());
  BoundProgram program = CompileGraph(Cpu(), graph);
  EXPECT_EQ(CountOps(program.graph(), "cpu.GatherGradAdd"), 1) << Print(program.graph());
  EXPECT_EQ(CountOps(program.graph(), "Add"), 0);
  CheckAgainstHost(graph, std::move(program), 1e-5);
}

}  // namespace
}  // namespace onnxtrain
