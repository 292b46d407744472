// Chains of elementwise operators run as one node: the same values, also where outputs take the place of inputs.
#include <cmath>

#include "frontend/graph/text_form.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/dynamic_code.h"
#include "frontend/ops/host_eval.h"
#include "tests/backends/cpu/testing.h"

namespace onnxtrain {
namespace {

Type F(Shape shape) { return {DType::kFloat32, std::move(shape)}; }

size_t CountOps(const Graph& graph, std::string_view op) {
  return std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& n) { return n.op == op; });
}

// Runs the program and compares all outputs, those `into` inputs included. Returns the legalized graph.
Graph CheckAgainstHost(const Graph& graph, std::mt19937& random) {
  BoundProgram program = CompileGraph(Cpu(), graph);
  std::map<std::string, HostTensor> inputs;
  for (const GraphInput& input : graph.inputs()) {
    inputs[input.name] = RandomTensor(graph.type(input.value), random, 0.5, 2);
    EXPECT_TRUE(program.Set(input.name, inputs[input.name]).ok());
  }
  const auto want = Interpret(graph, inputs);
  EXPECT_TRUE(want.ok()) << want.status().message();
  EXPECT_TRUE(program.Run().ok());
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    const HostTensor got = program.Get(graph.outputs()[o].name).value();
    for (int64_t i = 0; i < got.size(); ++i) {
      const double expected = (*want)[o].At(i);
      if (std::abs(got.At(i) - expected) <= 1e-4 * std::max(1.0, std::abs(expected))) continue;
      ADD_FAILURE() << "output " << o << " element " << i << ": " << got.At(i) << " for " << expected;
      break;
    }
  }
  return program.graph();
}

TEST(CpuFuse, UpdateOfAdamIsOneNodeInPlace) {
  Graph graph;
  Builder b(&graph);
  const Type type = F({5000});
  const Val p = b.Input(InputKind::kParameter, "p", type), m = b.Input(InputKind::kState, "m", type);
  const Val v = b.Input(InputKind::kState, "v", type), g = b.Input(InputKind::kFeed, "g", type);
  const Val lr = b.Input(InputKind::kFeed, "lr", F({}));
  const Val apply = Greater(lr, b.Scalar(DType::kFloat32, 1));
  const Val m2 = m * 0.9 + g * 0.1, v2 = v * 0.99 + g * g * 0.01;
  const Val p2 = p - lr * (m2 / (Sqrt(v2) + 1e-8));
  graph.AddOutput("p2", Where(apply, p2, p).id(), p.id());
  graph.AddOutput("m2", Where(apply, m2, m).id(), m.id());
  graph.AddOutput("v2", Where(apply, v2, v).id(), v.id());
  std::mt19937 random(1);
  for (int i = 0; i < 4; ++i) {  // lr on both sides of 1
    const Graph legal = CheckAgainstHost(graph, random);
    EXPECT_EQ(CountOps(legal, "cpu.Fused"), 1);
    EXPECT_EQ(CountOps(legal, "Mul"), 0);
  }
}

// The update of adam with states in codes, and with `apart` all intermediate values as outputs, which keeps the
// conversions out of the chain.
Graph CodedAdam(int64_t n, bool apart) {
  Graph graph;
  Builder b(&graph);
  const Val p = b.Input(InputKind::kParameter, "p", F({n})), g = b.Input(InputKind::kFeed, "g", F({n}));
  const Val lr = b.Input(InputKind::kFeed, "lr", F({}));
  const auto state = [&](const std::string& name, bool is_signed) {
    return DequantizeDynamic({b.Input(InputKind::kState, name, {DType::kUInt8, {n}}),
                              b.Input(InputKind::kState, name + "_scale", F({DynamicBlocks(n)}))},
                             is_signed);
  };
  const Val m = state("m", true), v = state("v", false);
  const Val m2 = m * 0.9 + g * 0.1, v2 = v * 0.99 + g * g * 0.01;
  const DynamicTensor m3 = QuantizeDynamic(m2, true), v3 = QuantizeDynamic(v2, false);
  graph.AddOutput("p2", (p - lr * (m2 / (Sqrt(v2) + 1e-8))).id(), p.id());
  for (const auto& [name, value] :
       {std::pair("m3", m3.codes), {"m3_scale", m3.scales}, {"v3", v3.codes}, {"v3_scale", v3.scales}})
    graph.AddOutput(name, value.id());
  for (const auto& [name, value] : {std::pair("m", m), {"v", v}, {"m2", m2}, {"v2", v2}}) {
    if (apart) graph.AddOutput(std::string("apart_") + name, value.id());
  }
  EXPECT_TRUE(b.status().ok()) << b.status();
  return graph;
}

TEST(CpuFuse, ChainReadsAndWritesCodes) {
  for (const int64_t n : {300, 2048, 5000, 70'001}) {
    const Graph together = CodedAdam(n, false), apart = CodedAdam(n, true);
    BoundProgram fused = CompileGraph(Cpu(), together), plain = CompileGraph(Cpu(), apart);
    EXPECT_EQ(CountOps(fused.graph(), "cpu.FusedCodes"), 1) << Print(fused.graph());
    EXPECT_EQ(CountOps(fused.graph(), "QuantizeDynamic") + CountOps(fused.graph(), "DequantizeDynamic"), 0);
    EXPECT_EQ(CountOps(plain.graph(), "QuantizeDynamic") + CountOps(plain.graph(), "DequantizeDynamic"), 4);
    std::mt19937 random(3);
    for (const GraphInput& input : together.inputs()) {
      const Type& type = together.type(input.value);
      const HostTensor value = RandomTensor(type, random, 0.5, IsFloat(type.dtype) ? 2 : 255);
      EXPECT_TRUE(fused.Set(input.name, value).ok() && plain.Set(input.name, value).ok());
    }
    EXPECT_TRUE(fused.Run().ok() && plain.Run().ok());
    for (const GraphOutput& output : together.outputs())
      EXPECT_TRUE(fused.Get(output.name)->SameBytes(*plain.Get(output.name))) << output.name << " of " << n;
  }
}

TEST(CpuFuse, ChainIsBrokenByAProductOfItsOwnValues) {
  // a → relu → product → relu' · relu: one node for both elementwise parts would have to run before itself.
  Graph graph;
  Builder b(&graph);
  const Val x = b.Input(InputKind::kFeed, "x", F({8, 8}));
  const Val a = Sqrt(x * 2.0);
  const Val y = MatMul(a, a);
  const Val z = Exp(y * 0.01) * a;
  graph.AddOutput("z", z.id());
  std::mt19937 random(2);
  EXPECT_EQ(CountOps(CheckAgainstHost(graph, random), "cpu.Fused"), 2);
}

// A parameter that is updated in place is not read again after its update.
TEST(CpuFuse, NothingIsRepeatedFromWhatChanges) {
  Graph graph;
  Builder b(&graph);
  const Val p = b.Input(InputKind::kParameter, "p", F({8})), x = b.Input(InputKind::kFeed, "x", F({8, 8}));
  const Val a = Exp(p * 0.1) + x;
  const Val step = ReduceSum(MatMul(x, x), {0}, false);
  const Val p2 = p - step;
  graph.AddOutput("p2", p2.id(), p.id());
  graph.AddOutput("y", (a * MatMul(x * p2, x)).id());
  std::mt19937 random(4);
  CheckAgainstHost(graph, random);
}

TEST(CpuFuse, SumOfSquaresIsOnePass) {
  for (const std::vector<int64_t>& axes : {std::vector<int64_t>{}, {0}, {1}}) {
    Graph graph;
    Builder b(&graph);
    const Val x = b.Input(InputKind::kFeed, "x", F({30, 70}));
    graph.AddOutput("y", ReduceSum(x * x, axes).id());
    std::mt19937 random(2);
    const Graph legal = CheckAgainstHost(graph, random);
    EXPECT_EQ(CountOps(legal, "cpu.ReduceSumSquares"), 1);
    EXPECT_EQ(CountOps(legal, "Mul"), 0);
  }
}

// Sums over a chain's values are taken in the same pass, whatever the axes, and the values stay if anyone else reads
// them.
TEST(CpuFuse, ChainEndsWithSums) {
  struct Form {
    std::vector<int64_t> axes;
    Shape view;    // reshaped to before; empty: not
    int64_t sums;  // that are part of the chain
  };
  const Form forms[] = {{{0, 1}, {}, 1},      {{2}, {}, 1}, {{1, 2}, {}, 1}, {{}, {}, 1},
                        {{0}, {150, 280}, 1}, {{1}, {}, 0}, {{0, 2}, {}, 0}};
  for (const Form& form : forms) {
    for (const bool mean : {false, true}) {
      for (const bool stored : {false, true}) {
        Graph graph;
        Builder b(&graph);
        const Val x = b.Input(InputKind::kFeed, "x", F({30, 20, 70})), s = b.Input(InputKind::kFeed, "s", F({70}));
        const Val y = Exp(x * 0.5) * s;
        const Val of = form.view.empty() ? y : Reshape(y, form.view);
        graph.AddOutput("sum", (mean ? ReduceMean(of, form.axes) : ReduceSum(of, form.axes)).id());
        if (stored) graph.AddOutput("y", MatMul(y, b.Input(InputKind::kFeed, "w", F({70, 3}))).id());
        std::mt19937 random(2);
        const Graph legal = CheckAgainstHost(graph, random);
        SCOPED_TRACE(StrCat(form.axes.size(), " axes, mean ", mean, ", stored ", stored));
        EXPECT_EQ(CountOps(legal, "cpu.Fused"), 1);
        EXPECT_EQ(CountOps(legal, "ReduceSum") + CountOps(legal, "ReduceMean"), 1 - form.sums);
        for (const Node& node : legal.nodes()) {
          if (node.op != "cpu.Fused") continue;
          EXPECT_EQ(node.outputs.size(), (stored || form.sums == 0) + form.sums);
        }
      }
    }
  }
}

// A gradient of GELU and its bias, of PReLU's slope and a residual's scale: the backward pass of a layer.
TEST(CpuFuse, SumsOfOneChainAndValuesBetween) {
  Graph graph;
  Builder b(&graph);
  const auto matrix = [&](const char* name) { return b.Input(InputKind::kFeed, name, F({300, 90})); };
  const Val dy = matrix("dy"), x = matrix("x"), h = matrix("h");
  const Val dx = b.Op("GeluGrad", {dy, x}, {{"approximate", std::string("none")}});
  graph.AddOutput("bias", ReduceSum(dx, {0}, false).id());
  const Val scaled = dx * h;
  graph.AddOutput("scale", ReduceSum(scaled, {0}).id());
  graph.AddOutput("rows", ReduceMean(scaled - dx, {1}).id());
  graph.AddOutput("dx", dx.id());
  std::mt19937 random(2);
  const Graph legal = CheckAgainstHost(graph, random);
  EXPECT_EQ(CountOps(legal, "cpu.Fused"), 1);
  EXPECT_EQ(legal.nodes().size() - CountOps(legal, "Reshape"), 1) << Print(legal);
}

// The gradient of GELU goes on in bf16, and its bias sums up what was rounded.
TEST(CpuFuse, SumsOfRoundedValuesAreTakenWhereTheyAreRounded) {
  for (const bool view : {false, true}) {
    Graph graph;
    Builder b(&graph);
    const Val dy = b.Input(InputKind::kFeed, "dy", F({300, 90})), x = b.Input(InputKind::kFeed, "x", F({300, 90}));
    const Val dx = Cast(b.Op("GeluGrad", {dy, x}, {{"approximate", std::string("none")}}), DType::kBFloat16);
    const Val wide = Cast(dx, DType::kFloat32);
    graph.AddOutput("bias", ReduceSum(view ? Reshape(wide, {30, 10, 90}) : wide,
                                      view ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0}, false)
                                .id());
    graph.AddOutput("dx", Transpose(dx, {1, 0}).id());
    std::mt19937 random(2);
    const Graph legal = CheckAgainstHost(graph, random);
    EXPECT_EQ(CountOps(legal, "cpu.Fused"), 1) << Print(legal);
    EXPECT_EQ(CountOps(legal, "ReduceSum") + CountOps(legal, "Cast"), 0);
  }
}

// Returns x·cos + [−x₂, x₁]·sin, or with `transposed` its gradient, x·cos + [z₂, −z₁] with z = x·sin.
Val RotaryEmbedding(Val x, Val cos, Val sin, bool transposed) {
  const int64_t half = x.dim(3) / 2;
  const Val wide = Cast(x, DType::kFloat32), turned = transposed ? Cast(wide * sin, x.dtype()) : x;
  const Val first = Slice(turned, 3, 0, half), second = Slice(turned, 3, half, half);
  const Val halves = Cast(transposed ? Concat({second, -first}, 3) : Concat({-second, first}, 3), DType::kFloat32);
  return Cast(wide * cos + (transposed ? halves : halves * sin), x.dtype());
}

TEST(CpuFuse, RotaryEmbeddingsAreOneNode) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const bool transposed : {false, true}) {
      for (const int64_t size : {2, 10, 64, 96, 512, 514}) {
        SCOPED_TRACE(StrCat(ToString(dtype), transposed ? " transposed " : " ", size));
        Graph graph;
        Builder b(&graph);
        const Val x = b.Input(InputKind::kState, "x", {dtype, {2, 3, 37, size}});
        const Val cos = b.Input(InputKind::kFeed, "cos", F({1, 1, 37, size})),
                  sin = b.Input(InputKind::kFeed, "sin", F({37, size}));
        graph.AddOutput("y", RotaryEmbedding(x, cos, sin, transposed).id(), x.id());
        std::mt19937 random(2);
        const Graph fused = CheckAgainstHost(graph, random);
        if (size <= 512) {
          EXPECT_EQ(fused.nodes().size(), 1u) << Print(fused);
        }
      }
    }
  }
}

// Rows are rotated by whole rows, also where nothing else is computed or the halves serve others.
TEST(CpuFuse, RotationsAlone) {
  Graph graph;
  Builder b(&graph);
  const Val x = b.Input(InputKind::kFeed, "x", F({500, 66}));
  const Val first = Slice(x, 1, 0, 33), second = Slice(x, 1, 33, 33);
  graph.AddOutput("turned", Concat({-second, first}, 1).id());
  graph.AddOutput("first", (first * 2.0).id());
  graph.AddOutput("swapped", Concat({second, first}, 1).id());
  const auto upside_down = [&](int64_t start) {
    return b.Op("Slice", {x},
                {{"starts", std::vector<int64_t>{499, start}},
                 {"sizes", std::vector<int64_t>{500, 33}},
                 {"steps", std::vector<int64_t>{-1, 1}}});
  };
  graph.AddOutput("flipped", Concat({-upside_down(33), upside_down(0)}, 1).id());
  graph.AddOutput("sum", ReduceSum(Concat({second, -first}, 1) * x, {1}).id());
  std::mt19937 random(2);
  const Graph fused = CheckAgainstHost(graph, random);
  // One is alone, one is fused with the product, whose sum stays outside of a chain that rotates; the others are none.
  EXPECT_EQ(CountOps(fused, "cpu.RotateHalves"), 1) << Print(fused);
  EXPECT_EQ(CountOps(fused, "cpu.Fused"), 1) << Print(fused);
  EXPECT_EQ(CountOps(fused, "Concat"), 2) << Print(fused);
}

// What needs a sum cannot be computed in the pass that makes it.
TEST(CpuFuse, NothingOfAChainReadsItsSum) {
  Graph graph;
  Builder b(&graph);
  const Val x = Sqrt(b.Input(InputKind::kFeed, "x", F({300, 90})) * 2.0);
  const Val centered = x - ReduceMean(x, {1});
  graph.AddOutput("y", (centered * Sqrt(ReduceSum(centered * centered, {1}) + 1.0)).id());
  graph.AddOutput("total", (x * ReduceSum(x, {})).id());
  std::mt19937 random(2);
  CheckAgainstHost(graph, random);
}

TEST(CpuFuse, HalfPrecisionComputesInFloat) {
  for (DType half : {DType::kFloat16, DType::kBFloat16}) {
    Graph graph;
    Builder b(&graph);
    const Val x = b.Input(InputKind::kFeed, "x", {half, {8, 8}});
    graph.AddOutput("y", (MatMul(Exp(x * 0.5), x) + x).id());
    std::mt19937 random(2);
    const HostTensor hx = RandomTensor({half, {8, 8}}, random);
    const auto want = Interpret(graph, {{"x", hx}});
    ASSERT_TRUE(want.ok()) << want.status().message();
    const HostTensor got = RunOnce(Cpu(), graph, {{"x", hx}})[0];
    ASSERT_EQ(got.dtype(), half);
    for (int64_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got.At(i), (*want)[0].At(i), half == DType::kFloat16 ? 0.02 : 0.2);
  }
}

// A term of a sum: a factor before it or none, and alone, a product or a quotient.
Val Term(Val a, Val b, Val factor, int kind) {
  const Val term = kind == 0 ? a : kind == 1 ? a * b : a / b;
  return factor ? term * factor : term;
}

TEST(CpuFuse, SumsOfScaledTerms) {
  for (int form = 0; form < 72; ++form) {
    SCOPED_TRACE(form);
    Graph graph;
    Builder b(&graph);
    const auto vector = [&](const char* name) { return b.Input(InputKind::kFeed, name, F({3, 700})); };
    const auto number = [&](const char* name) { return b.Input(InputKind::kFeed, name, F({})); };
    const Val w = vector("w"), x = vector("x"), y = vector("y"), z = vector("z"), s = number("s"), t = number("t");
    const Val left = Term(w, x, form & 1 ? s : Val(), form / 8 % 3),
              right = Term(y, z, form & 2 ? t : Val(), form / 24);
    const Val sum = form & 4 ? left - right : left + right;
    graph.AddOutput("sum", sum.id());
    graph.AddOutput("root", (Sqrt(sum * sum) * s + t).id());
    graph.AddOutput("root over", (Sqrt(sum * sum) / t + s).id());
    std::mt19937 random(form);
    EXPECT_EQ(CountOps(CheckAgainstHost(graph, random), "cpu.Fused"), 1);
  }
}

TEST(CpuFuse, AFlagDecidesAlsoWhereResultsChangePlaces) {
  for (double bound : {0.0, 10.0}) {
    Graph graph;
    Builder b(&graph);
    const auto state = [&](const char* name) { return b.Input(InputKind::kState, name, F({1500})); };
    const Val p = state("p"), q = state("q"),
              flag = Less(b.Input(InputKind::kFeed, "f", F({})), b.Scalar(DType::kFloat32, bound));
    graph.AddOutput("p2", Where(flag, p * 2.0 + q, q).id(), p.id());
    graph.AddOutput("q2", Where(flag, q * 3.0, p).id(), q.id());
    graph.AddOutput("kept", Where(flag, p - q, p).id());
    std::mt19937 random(4);
    CheckAgainstHost(graph, random);
  }
}

TEST(CpuFuse, CastsOfHalvesArePartOfTheChain) {
  Graph graph;
  Builder b(&graph);
  const Val x = b.Input(InputKind::kFeed, "x", {DType::kBFloat16, {3, 700}}),
            s = b.Input(InputKind::kFeed, "s", {DType::kBFloat16, {1}});
  const Val y = Exp(Cast(x, DType::kFloat32)) * Cast(Expand(s, {3, 700}), DType::kFloat32);
  graph.AddOutput("wide", y.id());
  graph.AddOutput("half", Cast(y * 0.5, DType::kBFloat16).id());
  const Graph fused = CompileGraph(Cpu(), graph).graph();
  EXPECT_EQ(CountOps(fused, "cpu.Fused"), 1);
  EXPECT_EQ(CountOps(fused, "Cast"), 0);
  std::mt19937 random(8);
  std::map<std::string, HostTensor> inputs;
  for (const GraphInput& input : graph.inputs()) inputs[input.name] = RandomTensor(graph.type(input.value), random);
  const auto want = Interpret(graph, inputs);
  ASSERT_TRUE(want.ok()) << want.status();
  const auto got = RunOnce(Cpu(), graph, inputs);
  for (int64_t i = 0; i < 2100; ++i) {
    ASSERT_NEAR(got[0].At(i), (*want)[0].At(i), 1e-6 * std::abs((*want)[0].At(i)));
    ASSERT_NEAR(got[1].At(i), (*want)[1].At(i), 1e-2 * std::abs((*want)[1].At(i)));
  }
}

TEST(CpuFuse, RandomGraphs) {
  const Shape full = {3, 5, 70};
  const Shape shapes[] = {full, {70}, {5, 1}, {}, {3, 1, 1}, {1, 5, 70}};
  for (int round = 0; round < 60 && !testing::Test::HasFailure(); ++round) {
    std::mt19937 random(round);
    const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
    Graph graph;
    Builder b(&graph);
    std::vector<Val> values;
    for (size_t i = 0; i < 6; ++i) values.push_back(b.Input(InputKind::kState, StrCat("x", i), F(shapes[i])));
    values.push_back(b.Input(InputKind::kState, "x6", F(full)));
    for (int i = 0; i < 30; ++i) {
      const Val x = values[pick(values.size())], y = values[values.size() - 1 - pick(4)];
      Val z;
      switch (pick(8)) {
        case 0:
          z = x + y;
          break;
        case 1:
          z = x * 0.5 - y;
          break;
        case 2:
          z = b.Op("Max", {x, y});
          break;
        case 3:
          z = Where(Greater(x, y), x, y * 0.3);
          break;
        case 4:
          z = Tanh(x);
          break;
        case 5:
          z = Sigmoid(y) * x;
          break;
        case 6:  // ends a chain
          z = x.rank() > 0 ? b.Op("Softmax", {x}, {{"axis", int64_t{x.rank() - 1}}}) : x;
          break;
        default:
          z = b.Op("Cast", {Less(x, y)}, {{"to", std::string("f32")}}) + y;
          break;
      }
      ASSERT_TRUE(b.status().ok()) << b.status().message();
      values.push_back(z);
    }
    size_t outputs = 0;
    for (size_t i = 7; i < values.size(); ++i) {
      const std::vector<int64_t> axes[] = {{0}, {2}, {1}, {0, 1}, {1, 2}, {}};
      if (pick(4) == 0)
        graph.AddOutput(StrCat("sum", i),
                        ReduceSum(values[i], values[i].shape() == full ? axes[pick(6)] : axes[5]).id());
      if (values[i].shape() != full || pick(3) == 0) continue;
      const bool into = outputs < 2;
      graph.AddOutput(StrCat("y", outputs), values[i].id(), into ? values[outputs == 0 ? 0 : 6].id() : kNoValue);
      ++outputs;
    }
    if (outputs == 0) continue;
    SCOPED_TRACE(round);
    CheckAgainstHost(graph, random);
  }
}

}  // namespace
}  // namespace onnxtrain
