// Products with bias, activation and packed weights against the plain ones.
#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/graph/text_form.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/dequantize.h"
#include "frontend/ops/host_eval.h"
#include "frontend/passes/eliminate.h"
#include "frontend/passes/rewrite.h"
#include "tests/backends/cpu/testing.h"

namespace onnxtrain {
namespace {

Type F(Shape shape) { return {DType::kFloat32, std::move(shape)}; }

size_t CountOps(const Graph& graph, std::string_view op) {
  return std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& n) { return n.op == op; });
}

struct Case {
  Shape a, b, bias;
  bool trans_b = false, relu = false;
  InputKind kind = InputKind::kFeed;
};

Graph CheckAgainstHost(const Case& c) {
  std::mt19937 random(4);
  Graph graph;
  Builder b(&graph);
  Val y = MatMul(b.Input(InputKind::kFeed, "a", F(c.a)), b.Input(c.kind, "b", F(c.b)), false, c.trans_b);
  if (!c.bias.empty()) y = y + b.Input(InputKind::kParameter, "bias", F(c.bias));
  if (c.relu) y = b.Op("Relu", {y});
  EXPECT_TRUE(b.status().ok()) << b.status().message();
  graph.AddOutput("y", y.id());
  std::map<std::string, HostTensor> inputs;
  for (const GraphInput& input : graph.inputs())
    inputs[input.name] = RandomTensor(graph.type(input.value), random, -1, 1);
  const auto want = Interpret(graph, inputs);
  EXPECT_TRUE(want.ok()) << want.status().message();
  BoundProgram program = CompileGraph(Cpu(), graph);
  for (const auto& [name, value] : inputs) EXPECT_TRUE(program.Set(name, value).ok());
  EXPECT_TRUE(program.Run().ok());
  const HostTensor got = program.Get("y").value();
  for (int64_t i = 0; i < got.size(); ++i) {
    if (std::abs(got.At(i) - (*want)[0].At(i)) <= 2e-6 * std::sqrt(c.a.back()) * 4) continue;
    ADD_FAILURE() << "element " << i << ": " << got.At(i) << " for " << (*want)[0].At(i);
    break;
  }
  return program.graph();
}

TEST(CpuMatMul, BiasAndReluBecomePartOfTheProduct) {
  for (const Shape& bias : {Shape{9}, Shape{1, 9}, Shape{1, 1, 9}}) {
    for (bool relu : {false, true}) {
      const Graph legal = CheckAgainstHost({.a = {2, 5, 7}, .b = {7, 9}, .bias = bias, .relu = relu});
      EXPECT_EQ(CountOps(legal, "cpu.MatMul"), 1);
      EXPECT_EQ(CountOps(legal, "Add") + CountOps(legal, "Relu") + CountOps(legal, "MatMul"), 0);
    }
  }
  EXPECT_EQ(CountOps(CheckAgainstHost({.a = {5, 7}, .b = {7, 9}, .bias = {5, 1}}), "Add"), 1);
  CheckAgainstHost({.a = {3, 4, 5, 7}, .b = {3, 1, 9, 7}, .bias = {9}, .trans_b = true, .relu = true});
  CheckAgainstHost({.a = {3, 0}, .b = {0, 4}, .bias = {4}, .relu = true});
}

TEST(CpuMatMul, WeightsArePackedOnceForAllTheirProducts) {
  for (bool trans_b : {false, true}) {
    const Shape b = trans_b ? Shape{70, 130} : Shape{130, 70};
    const Graph legal = CheckAgainstHost(
        {.a = {4, 32, 130}, .b = b, .bias = {70}, .trans_b = trans_b, .relu = true, .kind = InputKind::kFrozen});
    EXPECT_LE(CountOps(legal, "cpu.PackWeight"), 1);  // none where the plain layout is the fastest
  }
  // A trained weight and few rows: packing would cost more than it gains.
  EXPECT_EQ(
      CountOps(CheckAgainstHost({.a = {64, 130}, .b = {130, 70}, .kind = InputKind::kParameter}), "cpu.PackWeight"), 0);

  Graph graph;
  Builder build(&graph);
  const Val w = build.Input(InputKind::kFrozen, "w", F({96, 96})), x = build.Input(InputKind::kFeed, "x", F({64, 96}));
  graph.AddOutput("y", MatMul(MatMul(MatMul(x, w), w), w, false, true).id());
  const auto legal = Cpu().Legalize(graph);
  ASSERT_TRUE(legal.ok()) << legal.status().message();
  EXPECT_LE(CountOps(*legal, "cpu.PackWeight"), 2);
}

struct HalfCase {
  Shape a, b, bias;
  bool trans_a = false, trans_b = false, relu = false;
  DType out = DType::kBFloat16;
  InputKind kind = InputKind::kFeed;
  DType in = DType::kBFloat16;
};

Graph HalfProduct(const HalfCase& c) {
  Graph graph;
  Builder b(&graph);
  const auto half = [&](InputKind kind, const char* name, const Shape& shape) {
    return Cast(b.Input(kind, name, F(shape)), c.in);
  };
  const Val a = half(InputKind::kFeed, "a", c.a);
  Val y = MatMul(a, half(c.kind, "b", c.b), c.trans_a, c.trans_b);
  if (!c.bias.empty()) y = y + half(InputKind::kParameter, "bias", c.bias);
  if (c.relu) y = b.Op("Relu", {y});
  graph.AddOutput("y", Cast(y, c.out).id());
  EXPECT_TRUE(b.status().ok()) << b.status().message();
  return graph;
}

// Runs the product with a weight of this kind.
BoundProgram RunProduct(const HalfCase& c, InputKind kind, DType in) {
  HalfCase of_kind = c;
  of_kind.kind = kind;
  of_kind.in = in;
  BoundProgram program = CompileGraph(Cpu(), HalfProduct(of_kind));
  std::mt19937 random(5);
  for (const auto& [name, shape] : {std::pair("a", c.a), {"b", c.b}, {"bias", c.bias}})
    EXPECT_TRUE(program.Set(name, RandomTensor(F(shape), random, -1, 1)).ok());
  EXPECT_TRUE(program.Run().ok());
  return program;
}

TEST(CpuMatMul, FrozenWeightsOfManyRowsAreReadAsStored) {
  for (const DType in : {DType::kFloat32, DType::kBFloat16}) {
    for (const auto& [k, trans_b] : {std::pair<int64_t, bool>(600, false), {600, true}, {2300, false}}) {
      const HalfCase c = {.a = {2, 400, k},
                          .b = trans_b ? Shape{1100, k} : Shape{k, 1100},  // the last tile is narrower
                          .bias = {1100},
                          .trans_b = trans_b,
                          .relu = true,
                          .out = DType::kFloat32};
      BoundProgram frozen = RunProduct(c, InputKind::kFrozen, in), trained = RunProduct(c, InputKind::kParameter, in);
      EXPECT_EQ(frozen.Get("y").value(), trained.Get("y").value());
      const bool by_tiles =
          std::ranges::any_of(frozen.graph().nodes(), [](const Node& node) { return node.attrs.Int("tiles") != 0; });
      EXPECT_EQ(by_tiles, CountOps(trained.graph(), "cpu.PackWeight") > 0) << "as far as the processor packs";
      EXPECT_EQ(CountOps(frozen.graph(), "cpu.PackWeight"), 0);
    }
  }
}

TEST(CpuMatMul, FrozenWeightsOfSomeRowsAreReadAsStored) {
  for (const bool trans_b : {false, true}) {
    const HalfCase c = {.a = {2, 150, 600},
                        .b = trans_b ? Shape{200, 600} : Shape{600, 200},
                        .bias = {200},
                        .trans_b = trans_b,
                        .out = DType::kFloat32};
    BoundProgram frozen = RunProduct(c, InputKind::kFrozen, DType::kFloat32),
                 trained = RunProduct(c, InputKind::kParameter, DType::kFloat32);
    EXPECT_EQ(CountOps(frozen.graph(), "cpu.PackWeight"), 0);
    EXPECT_EQ(CountOps(frozen.graph(), "MatMulDequantized"), 1);
    const HostTensor y = frozen.Get("y").value(), want = trained.Get("y").value();
    for (int64_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y.At(i), want.At(i), 1e-4) << i;
  }
}

// A matrix [rows, columns] of low-bit numbers whose product with few rows has a kernel of its own.
struct LowBitCase {
  int64_t bits, block, columns, zero_bits = 0;  // 0: no zero points
  DType number = DType::kUInt8, scale = DType::kFloat32, zero = DType::kUInt8;
  bool nf4 = false;
};

Graph LowBitProduct(const LowBitCase& c, int64_t m) {
  constexpr int64_t kRows = 37;
  const QuantizedMatrix w{.rows = kRows,
                          .columns = c.columns,
                          .bits = c.bits,
                          .is_signed = c.number == DType::kInt8,
                          .block_columns = c.block,
                          .zero_bits = c.zero_bits == 0 ? 8 : c.zero_bits,
                          .zero = c.nf4 || c.zero_bits != 0 ? 0.0 : 5.0,
                          .nf4 = c.nf4};
  Graph graph;
  Builder b(&graph);
  const Val x = b.Input(InputKind::kFeed, "x", F({m, c.columns}));
  const Shape zeros = {kRows, IsFloat(c.zero) ? w.scale_columns() : w.zero_row_bytes()};
  const QuantizedOperands operands = {
      .q = b.Input(InputKind::kFrozen, "q", {c.number, {kRows, (c.columns * c.bits + 7) / 8}}),
      .scale = b.Input(InputKind::kFrozen, "scale", {c.scale, {kRows, w.scale_columns()}}),
      .zero = c.zero_bits == 0 ? Val() : b.Input(InputKind::kFrozen, "zero", {c.zero, zeros}),
      .matrix = w};
  graph.AddOutput("y", MatMulDequantized(x, operands, true).id());
  EXPECT_TRUE(b.status().ok()) << b.status().message();
  return graph;
}

// Few rows are multiplied as they are among many, whose product dequantizes tiles.
TEST(CpuMatMul, FewRowsOfLowBitProductsEqualThoseOfMany) {
  constexpr DType kU8 = DType::kUInt8, kI8 = DType::kInt8, kF32 = DType::kFloat32, kF16 = DType::kFloat16;
  const LowBitCase kCases[] = {{4, 32, 1024},
                               {4, 16, 1000},
                               {4, 128, 96, 4},
                               {4, 32, 1056, 4},
                               {4, 8, 72, 8, kU8, kF16},
                               {4, 64, 130, 8, kU8, kF32, kF32},
                               {2, 16, 513},
                               {2, 64, 1024, 2},
                               {8, 32, 300},
                               {8, 16, 301, 8, kU8, DType::kBFloat16},
                               {8, 128, 300, 8, kI8, kF32, kI8},
                               {8, 1024, 77, 0, kI8},
                               {.bits = 4, .block = 64, .columns = 700, .nf4 = true}};
  for (const LowBitCase& c : kCases) {
    SCOPED_TRACE(StrCat(c.bits, " bits in blocks of ", c.block, ", ", c.columns, " columns, nf4 ", c.nf4));
    constexpr int64_t kMany = 24;
    const Graph many = LowBitProduct(c, kMany);
    std::mt19937 random(6);
    std::map<std::string, HostTensor> inputs;
    for (const GraphInput& input : many.inputs()) {
      const Type& type = many.type(input.value);
      inputs[input.name] = type.dtype == kU8 ? RandomTensor(type, random, 0, 256) : RandomTensor(type, random, -1, 1);
      if (type.dtype == kI8) inputs[input.name] = RandomTensor(type, random, -128, 128);
    }
    const HostTensor want = RunOnce(Cpu(), many, inputs)[0];
    double greatest = 0;
    for (int64_t i = 0; i < want.size(); ++i) greatest = std::max(greatest, std::abs(want.At(i)));
    const HostTensor x = inputs["x"];
    ForEachTarget([&] {
      for (const int64_t m : {1, 2, 3, 4, 7, 8}) {
        HostTensor first(F({m, c.columns}));
        for (int64_t i = 0; i < first.size(); ++i) first.Set(i, x.At(i));
        inputs["x"] = first;
        const HostTensor got = RunOnce(Cpu(), LowBitProduct(c, m), inputs)[0];
        for (int64_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got.At(i), want.At(i), 4e-6 * greatest) << m << ", " << i;
      }
    });
  }
}

// bf16 products accumulate in float32 and round once, where the host rounds at every step.
TEST(CpuMatMul, BFloat16) {
  const HalfCase kCases[] = {
      {.a = {33, 65}, .b = {65, 17}},
      {.a = {33, 65}, .b = {65, 17}, .out = DType::kFloat32},
      {.a = {65, 33}, .b = {65, 17}, .trans_a = true, .out = DType::kFloat32},
      {.a = {65, 33}, .b = {17, 65}, .trans_a = true, .trans_b = true},
      {.a = {2, 3, 16, 24}, .b = {2, 3, 24, 8}},
      {.a = {2, 3, 16, 24}, .b = {2, 1, 8, 24}, .trans_b = true, .out = DType::kFloat32},
      {.a = {33, 65}, .b = {65, 17}, .bias = {17}, .relu = true},
      {.a = {4, 8, 65}, .b = {65, 17}, .bias = {17}, .out = DType::kFloat32},
      {.a = {600, 128}, .b = {128, 64}, .bias = {64}, .relu = true, .kind = InputKind::kParameter},
      {.a = {600, 128},
       .b = {64, 128},
       .bias = {64},
       .trans_b = true,
       .out = DType::kFloat32,
       .kind = InputKind::kParameter},
      {.a = {3, 0}, .b = {0, 2}, .bias = {2}},
  };
  for (const HalfCase& c : kCases) {
    const Graph graph = HalfProduct(c);
    std::mt19937 random(5);
    std::map<std::string, HostTensor> inputs;
    for (const GraphInput& input : graph.inputs())
      inputs[input.name] = RandomTensor(graph.type(input.value), random, -1, 1);
    const auto want = Interpret(graph, inputs);
    ASSERT_TRUE(want.ok()) << want.status().message();
    const HostTensor got = RunOnce(Cpu(), graph, inputs)[0];
    ASSERT_EQ(got.type(), (*want)[0].type());
    for (int64_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got.At(i), (*want)[0].At(i), 0.03 + 0.01 * std::abs((*want)[0].At(i)))
          << ToString(c.a) << ToString(c.b) << " at " << i;
    }
  }
}

Graph PackedProduct() {
  return HalfProduct(
      {.a = {600, 128}, .b = {128, 64}, .bias = {64}, .out = DType::kFloat32, .kind = InputKind::kParameter});
}

bool MultipliesBFloat16() { return CountOps(CompileGraph(Cpu(), PackedProduct()).graph(), "cpu.PackWeight") != 0; }

struct Sizes {
  int64_t m, k, n;
  InputKind kind = InputKind::kFeed;
};

std::vector<float> Floats(const HostTensor& x) {
  std::vector<float> values;
  for (int64_t i = 0; i < x.size(); ++i) values.push_back(static_cast<float>(x.At(i)));
  return values;
}

// Compares the product of integers, whose sums are exact in any order, in some rows: one of each tile of 16, or fewer
// of large products.
void CheckProductOfIntegers(const Sizes& s, const HalfCase& c) {
  const Graph graph = HalfProduct(c);
  std::map<std::string, HostTensor> inputs;
  for (const GraphInput& input : graph.inputs()) {
    HostTensor& x = inputs[input.name] = HostTensor(graph.type(input.value));
    for (int64_t i = 0; i < x.size(); ++i) x.Set(i, static_cast<double>(i * 7919 / 13 % 5) - 2);
  }
  const HostTensor got = RunOnce(Cpu(), graph, inputs)[0];
  const std::vector<float> a = Floats(inputs["a"]), b = Floats(inputs["b"]);
  for (int64_t i = 0; i < s.m; i += s.m * s.n < 1'000'000 ? 15 : 61) {
    for (int64_t j = 0; j < s.n; ++j) {
      double want = c.bias.empty() ? 0 : inputs["bias"].At(j);
      for (int64_t p = 0; p < s.k; ++p) {
        want += double{a[c.trans_a ? p * s.m + i : i * s.k + p]} * b[c.trans_b ? j * s.k + p : p * s.n + j];
      }
      ASSERT_EQ(got.At(i * s.n + j), HostTensor::Scalar(c.out, want).At(0))
          << s.m << " × " << s.k << " × " << s.n << ", transposed " << c.trans_a << c.trans_b << ", element " << i
          << ", " << j;
    }
  }
}

void CheckProductsOfIntegers(std::span<const Sizes> sizes, DType in, std::span<const DType> outs) {
  for (const Sizes& s : sizes) {
    for (const auto& [trans_a, trans_b] : {std::pair(false, false), {false, true}, {true, false}, {true, true}}) {
      for (const DType out : outs) {
        CheckProductOfIntegers(s, {.a = trans_a ? Shape{s.k, s.m} : Shape{s.m, s.k},
                                   .b = trans_b ? Shape{s.n, s.k} : Shape{s.k, s.n},
                                   .bias = trans_a ? Shape{s.n} : Shape{},
                                   .trans_a = trans_a,
                                   .trans_b = trans_b,
                                   .out = out,
                                   .kind = s.kind,
                                   .in = in});
      }
    }
  }
}

// Sizes that are no multiples of tiles, sums and matrices of several chunks.
TEST(CpuMatMul, ProductsOfIntegersInBFloat16AreExact) {
  if (!MultipliesBFloat16()) GTEST_SKIP() << "this processor multiplies no bf16";
  const Sizes kSizes[] = {{333, 70, 150},   {64, 256, 96},      {130, 5001, 40}, {1111, 4100, 17},
                          {18, 4096, 1100}, {1050, 4100, 1100}, {96, 1600, 64},  {520, 100, 90, InputKind::kParameter}};
  const DType kOuts[] = {DType::kFloat32, DType::kBFloat16};
  CheckProductsOfIntegers(kSizes, DType::kBFloat16, kOuts);
}

// Few and many rows, wide and narrow results, short and long sums: one of two of oneDNN's implementations each, or
// tiles of AMX, at last in several chunks.
TEST(CpuMatMul, ProductsOfIntegersInFloat32AreExact) {
  const Sizes kSizes[] = {{1, 700, 5},       {7, 30, 3},   {31, 511, 40},  {31, 600, 700},
                          {300, 600, 513},   {300, 1, 90}, {33, 40, 1000}, {600, 70, 1030, InputKind::kParameter},
                          {1050, 1400, 1100}};
  const DType kOuts[] = {DType::kFloat32};
  CheckProductsOfIntegers(kSizes, DType::kFloat32, kOuts);
}

// The bound is three times the error of sums in float32, and a quarter of that of products of only two bf16 per float.
TEST(CpuMatMul, Float32ProductsHaveTheErrorOfFloat32) {
  constexpr int64_t kM = 333, kK = 1400, kN = 450;
  for (const auto& [trans_a, trans_b] : {std::pair(false, false), {false, true}, {true, false}, {true, true}}) {
    std::mt19937 random(8);
    const HostTensor a = RandomTensor(F(trans_a ? Shape{kK, kM} : Shape{kM, kK}), random, -1, 1),
                     b = RandomTensor(F(trans_b ? Shape{kN, kK} : Shape{kK, kN}), random, -1, 1);
    const Graph graph = HalfProduct({.a = a.shape(),
                                     .b = b.shape(),
                                     .trans_a = trans_a,
                                     .trans_b = trans_b,
                                     .out = DType::kFloat32,
                                     .in = DType::kFloat32});
    const HostTensor got = RunOnce(Cpu(), graph, {{"a", a}, {"b", b}})[0];
    double squares = 0, count = 0;
    for (int64_t i = 0; i < kM; i += 4) {
      for (int64_t j = 0; j < kN; ++j) {
        double sum = 0, magnitude = 0;
        for (int64_t p = 0; p < kK; ++p) {
          const double x = double{a.data<float>()[trans_a ? p * kM + i : i * kK + p]} *
                           b.data<float>()[trans_b ? j * kK + p : p * kN + j];
          sum += x;
          magnitude += std::abs(x);
        }
        const double error = (got.At(i * kN + j) - sum) / magnitude;
        squares += error * error;
        count += 1;
      }
    }
    EXPECT_LT(std::sqrt(squares / count), 5e-8) << "transposed " << trans_a << trans_b;
  }
}

// Huge numbers keep their values; a row or column with a number that is not finite has no finite sum.
TEST(CpuMatMul, Float32ProductsOfExtremeNumbers) {
  constexpr int64_t kSize = 400;
  const Graph graph =
      HalfProduct({.a = {kSize, kSize}, .b = {kSize, kSize}, .out = DType::kFloat32, .in = DType::kFloat32});
  HostTensor a(F({kSize, kSize})), b = HostTensor::Filled(F({kSize, kSize}), 1e-30);
  constexpr double kMax = std::numeric_limits<float>::max();
  const double kFirst[] = {kMax, -kMax, std::numeric_limits<double>::infinity(), std::nan(""), 1};
  for (int64_t i = 0; i < 5; ++i) a.Set(i * kSize + 7 * i, kFirst[i]);
  const HostTensor got = RunOnce(Cpu(), graph, {{"a", a}, {"b", b}})[0];
  for (int64_t j = 0; j < kSize; ++j) {
    EXPECT_NEAR(got.At(j), kMax * 1e-30, 1e2);
    EXPECT_NEAR(got.At(kSize + j), -kMax * 1e-30, 1e2);
    EXPECT_FALSE(std::isfinite(got.At(2 * kSize + j)));
    EXPECT_FALSE(std::isfinite(got.At(3 * kSize + j)));
    EXPECT_FLOAT_EQ(got.At(4 * kSize + j), 1e-30F);
    EXPECT_EQ(got.At(5 * kSize + j), 0);
  }
}

// The float32 master is packed, and the bias added, without a bf16 copy between; a product writes float32 where that is
// read.
TEST(CpuMatMul, BFloat16EpiloguesAndPacking) {
  if (!MultipliesBFloat16()) GTEST_SKIP() << "this processor multiplies no bf16";
  const Graph fused = CompileGraph(Cpu(), PackedProduct()).graph();
  EXPECT_EQ(CountOps(fused, "Cast"), 1) << Print(fused);  // of a
  EXPECT_EQ(CountOps(fused, "Add"), 0);
}

// Legalize decides what is rounded: with one of two users gone, as when rematerialization moves it to a clone, the
// other one reads the same bits.
TEST(CpuMatMul, RoundingDoesNotDependOnUseCounts) {
  const Shape a = {33, 65}, w = {65, 17};
  Graph both = HalfProduct({.a = a, .b = w, .bias = {17}});
  const ValueId product = std::ranges::find(both.nodes(), "MatMul", &Node::op)->outputs[0];
  both.AddOutput("product", product);
  const Graph legal = Cpu().Legalize(both).value();
  Graph one;
  Rewriter r(legal, &one);
  for (const Node& node : legal.nodes()) r.Copy(node);
  one.AddOutput("y", r.Map(legal.FindOutput("y")->value).id());
  std::mt19937 random(9);
  std::map<std::string, HostTensor> inputs;
  for (const GraphInput& input : both.inputs())
    inputs[input.name] = RandomTensor(both.type(input.value), random, -1, 1);
  const auto run = [&](const Graph& graph) {
    BoundProgram program = BoundProgram::Make(Cpu(), graph).value();
    for (const auto& [name, value] : inputs) EXPECT_TRUE(program.Set(name, value).ok());
    EXPECT_TRUE(program.Run().ok());
    return program.Get("y").value();
  };
  EXPECT_EQ(run(Dce(one)), run(legal));
}

// Rows with a single 1 bring every packed weight out as it was rounded, also at the rim of the blocks.
void CheckPackedWeights(DType dtype, bool transposed, int64_t k, int64_t n) {
  const Shape shape = transposed ? Shape{n, k} : Shape{k, n};
  const Graph graph = HalfProduct(
      {.a = {1024, k}, .b = shape, .trans_b = transposed, .out = dtype, .kind = InputKind::kFrozen, .in = dtype});
  std::mt19937 random(7);
  const HostTensor b = RandomTensor(F(shape), random, -1, 1);
  HostTensor a(F({1024, k}));
  for (int64_t i = 0; i < 1024; ++i) a.Set(i * k + i % k, 1);
  const HostTensor got = RunOnce(Cpu(), graph, {{"a", a}, {"b", b}})[0];
  for (int64_t i = 0; i < 1024 * n; ++i) {
    const int64_t row = i / n % k, column = i % n;
    const double want = b.At(transposed ? column * k + row : row * n + column);
    ASSERT_EQ(got.At(i), HostTensor::Scalar(dtype, want).At(0)) << ToString(shape) << " at " << i;
  }
}

TEST(CpuMatMul, PackedWeightsAreRoundedMasters) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (bool transposed : {false, true}) {
      for (const auto& [k, n] : {std::pair<int64_t, int64_t>{64, 128}, {100, 90}, {33, 16}, {700, 200}})
        CheckPackedWeights(dtype, transposed, k, n);
    }
  }
}

}  // namespace
}  // namespace onnxtrain
