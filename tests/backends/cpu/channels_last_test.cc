// Values that move to channels last: a network gives what its nodes give alone, where nothing moves, and is transposed
// only where it must be.
#include <cmath>
#include <limits>

#include "frontend/graph/text_form.h"
#include "frontend/ops/builder.h"
#include "tests/backends/cpu/testing.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;

Type F(Shape shape) { return {DType::kFloat32, std::move(shape)}; }
Type Nhwc(Shape shape) { return {DType::kFloat32, std::move(shape), Layout::kChannelsLast}; }

int64_t Count(const Graph& graph, std::string_view op) {
  return std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& n) { return n.op == op; });
}

// The graph's node alone, over inputs.
Graph Alone(const Graph& graph, const Node& node) {
  Graph alone;
  ValueIds inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId v = node.inputs[i];
    inputs.push_back(v == kNoValue ? v : alone.AddInput(InputKind::kFeed, StrCat("i", i), graph.type(v)));
  }
  std::vector<Type> types;
  for (ValueId v : node.outputs) types.push_back(graph.type(v));
  const Node& copy = alone.AddNode(node.op, inputs, node.attrs, types);
  for (size_t o = 0; o < copy.outputs.size(); ++o) alone.AddOutput(StrCat("o", o), copy.outputs[o]);
  return alone;
}

// Every value, node by node.
std::map<ValueId, HostTensor> RunNodeByNode(const Graph& graph, const std::map<std::string, HostTensor>& inputs) {
  std::map<ValueId, HostTensor> values;
  for (const GraphInput& input : graph.inputs()) values[input.value] = inputs.at(input.name);
  for (const Node& node : graph.nodes()) {
    if (node.op == "Constant") {
      values[node.outputs[0]] = *graph.FindConstant(node.outputs[0]);
      continue;
    }
    std::map<std::string, HostTensor> in;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != kNoValue) in[StrCat("i", i)] = values.at(node.inputs[i]);
    }
    const auto outputs = RunOnce(Cpu(), Alone(graph, node), in);
    for (size_t o = 0; o < outputs.size(); ++o) values[node.outputs[o]] = outputs[o];
  }
  return values;
}

std::map<std::string, HostTensor> RandomInputs(const Graph& graph) {
  std::mt19937 random(7);
  std::map<std::string, HostTensor> inputs;
  for (const GraphInput& input : graph.inputs())
    inputs[input.name] = RandomTensor(graph.type(input.value), random, 0.25, 1);
  return inputs;
}

// Returns the legalized graph.
Graph CheckAgainstNodes(const Graph& graph) {
  const auto inputs = RandomInputs(graph);
  const auto want = RunNodeByNode(graph, inputs);
  BoundProgram program = CompileGraph(Cpu(), graph);
  for (const auto& [name, value] : inputs) EXPECT_TRUE(program.Set(name, value).ok()) << name;
  EXPECT_TRUE(program.Run().ok());
  for (const GraphOutput& o : graph.outputs()) {
    const HostTensor got = program.Get(o.name).value(), &expected = want.at(o.value);
    for (int64_t i = 0; i < got.size(); ++i) {
      if (std::abs(got.At(i) - expected.At(i)) <= 2e-5 * std::max(1.0, std::abs(expected.At(i)))) continue;
      ADD_FAILURE() << o.name << "[" << i << "] is " << got.At(i) << ", alone " << expected.At(i);
      break;
    }
  }
  return program.graph();
}

Attrs Windows(int64_t kernel, int64_t stride, int64_t pad) {
  return {{"kernel_shape", Ints{kernel, kernel}},
          {"strides", Ints{stride, stride}},
          {"pads", Ints(4, pad)},
          {"dilations", Ints{1, 1}}};
}

Attrs WithIndexInWindow(Attrs attrs) {
  attrs.Set("index_in_window", int64_t{1});
  return attrs;
}

Attrs ConvAttrs(int64_t stride, int64_t pad, int64_t group = 1) {
  return {{"strides", Ints{stride, stride}}, {"pads", Ints(4, pad)}, {"dilations", Ints{1, 1}}, {"group", group}};
}

Val Conv(Val x, const std::string& name, int64_t channels, int64_t kernel, int64_t stride = 1) {
  Builder& b = x.b();
  const Val w = b.Input(InputKind::kParameter, name, F({channels, x.dim(1), kernel, kernel}));
  return b.Op("Conv", {x, w, b.Input(InputKind::kParameter, name + ".bias", F({channels}))},
              ConvAttrs(stride, kernel / 2));
}

Val Channels(Builder& b, const std::string& name, int64_t n) { return b.Input(InputKind::kParameter, name, F({n})); }

std::vector<Val> Pools(Val x) {
  Builder& b = x.b();
  std::vector<Val> all;
  for (const auto& [kernel, stride, pad] : {std::tuple(3, 2, 1), {2, 2, 0}, {2, 3, 0}}) {
    Attrs attrs = Windows(kernel, stride, pad);
    const auto max = b.Ops("MaxPool", {x}, attrs);
    all.insert(all.end(), {max[0], b.Op("MaxPoolGrad", {max[0] * 0.5, max[1]}, {{"input_shape", x.shape()}})});
    for (const int64_t whole : {0, 1}) {
      attrs.Set("count_include_pad", whole);
      const Val y = b.Op("AveragePool", {x}, attrs);
      Attrs back = attrs;
      back.Set("input_shape", x.shape());
      all.insert(all.end(), {y, b.Op("AveragePoolGrad", {y}, back)});
    }
  }
  return all;
}

// What can follow a convolution, and so moves: everything in one graph.
std::vector<Val> MakePropagatingOps(Builder& b) {
  const Val x = Conv(b.Input(InputKind::kFeed, "x", F({2, 3, 12, 10})), "w", 20, 3);
  std::vector<Val> all = {x};
  const auto add = [&](std::vector<Val> vals) {
    EXPECT_TRUE(b.status().ok()) << b.status().message();
    all.insert(all.end(), vals.begin(), vals.end());
    return vals[0];
  };
  const Val s = Channels(b, "scale", 20), m = Channels(b, "mean", 20);
  const auto norm = b.Ops("BatchNorm", {x, s, Channels(b, "bias", 20)}, {{"epsilon", 1e-3}});
  add(norm);
  add(b.Ops("BatchNormGrad", {x * x, x, s, norm[1], norm[2]}));
  add({b.Op("BatchNormInference", {x, s, m, m, s}, {{"epsilon", 1e-3}})});
  for (const Val& from : {x, Conv(x, "narrow", 6, 3)}) add(Pools(from));
  add({x + Reshape(s, {20, 1, 1}), x * b.Input(InputKind::kFeed, "plane", F({12, 10})), x - 2.0});
  add({Where(Greater(x, ReduceMean(x, {2, 3})), x, ZerosLike(x)), Expand(ReduceMean(x, {2, 3}), x.shape())});
  add({Concat({x, x * 2.0}, 1), Concat({x, x}, 3), Slice(x, 1, 3, 11), Slice(x, 2, 1, 7)});
  add(b.Ops("Split", {x}, {{"axis", int64_t{1}}, {"sizes", Ints{7, 13}}, {"num_outputs", int64_t{2}}}));
  add({b.Op("SliceGrad", {x},
            {{"input_shape", Ints{2, 25, 12, 11}}, {"starts", Ints{0, 2, 0, 1}}, {"steps", Ints{1, 1, 1, 1}}})});
  add({b.Op("Pad", {x}, {{"pads", Ints{0, 1, 2, 3, 0, 4, 5, 6}}, {"value", 0.5}})});
  add({ReduceSum(x, {0, 2, 3}, false), ReduceMean(x, {2, 3}, false), ReduceMax(x, {1}), ReduceSum(x, {1}, false),
       ReduceSum(x, {0, 2}, false)});
  const Attrs twice = {{"axes", Ints{2, 3}},
                       {"sizes", Ints{24, 20}},
                       {"position", std::vector<double>{0.5, 1, 2, -0.5, 0.5, 1, 2, -0.5}},
                       {"stretch", std::vector<double>{1, 1}},
                       {"mode", std::string("linear")}};
  const Val wide = add({b.Op("Resample", {x}, twice)});
  Attrs back = twice;
  back.Set("input_sizes", Ints{12, 10});
  add({b.Op("ResampleGrad", {wide}, back)});
  add({Transpose(x, {0, 2, 3, 1}), Conv(x, "point", 9, 1), Conv(x, "far", 9, 3, 2), Conv(x, "farpoint", 9, 1, 2)});
  const Val t = Transpose(Transpose(x, {0, 2, 3, 1}) * 3.0, {0, 3, 1, 2});
  add({Conv(t, "behind", 4, 3)});
  return all;
}

TEST(CpuChannelsLast, EveryFollowerGivesWhatItGivesAlone) {
  Graph all;
  Builder b(&all);
  const std::vector<Val> values = MakePropagatingOps(b);
  ASSERT_TRUE(b.status().ok()) << b.status().message();
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string name = StrCat("v", i, " ", all.producer(values[i].id())->op);
    // A convolution behind it wants it channels last, an output would not.
    const bool wide = values[i].rank() == 4 && values[i].dtype() == DType::kFloat32;
    all.AddOutput(name, wide ? Conv(values[i], name, 3, 1).id() : values[i].id());
  }
  const Graph legal = CheckAgainstNodes(all);
  for (const char* op :
       {"Conv", "BatchNorm", "BatchNormGrad", "BatchNormInference", "MaxPool", "MaxPoolGrad", "AveragePool"}) {
    int64_t channels_last = 0;
    for (const Node& node : legal.nodes()) {
      if (node.op != op && node.op != StrCat("cpu.", op)) continue;
      EXPECT_EQ(legal.type(node.inputs[0]).layout, Layout::kChannelsLast) << op;
      ++channels_last;
    }
    EXPECT_GE(channels_last, 1) << op;
  }
}

// Ties, NaN and nothing but −inf, in whole vectors of channels and behind them; and what a gradient picks by it.
TEST(CpuChannelsLast, MaximaAreTheFirstOfTheirWindowAndNaNWins) {
  const double inf = std::numeric_limits<double>::infinity();
  Cpu();  // whose operators are known from then on
  for (const int64_t channels : {3, 16, 40, 117}) {
    Graph graph;
    Builder b(&graph);
    const Shape in = {3, channels, 4, 6}, out = {3, channels, 2, 3};
    const auto pool = b.Ops("MaxPool", {b.Input(InputKind::kFeed, "x", Nhwc(in))}, WithIndexInWindow(Windows(2, 2, 0)));
    Attrs back = Windows(2, 2, 0);
    back.Set("input_shape", in);
    graph.AddOutput("y", pool[0].id());
    graph.AddOutput("dx", b.Op("MaxPoolGrad", {b.Input(InputKind::kFeed, "dy", Nhwc(out)), pool[1]}, back).id());
    std::mt19937 random(3);
    std::vector<double> x, dy, y, dx(NumElements(in), 0.0);
    for (int64_t i = 0; i < NumElements(in); ++i)
      x.push_back(random() % 40 == 0 ? std::nan("") : random() % 3 == 0 ? -inf : random() % 2);
    for (int64_t i = 0; i < NumElements(out); ++i) dy.push_back(1.0 + i);
    for (int64_t i = 0; i < NumElements(out); ++i) {
      const int64_t c = i % channels, w = i / channels % 3, h = i / channels / 3;  // rows of all samples
      int64_t best = -1;
      for (const int64_t tap : {0, 1, 2, 3}) {
        const int64_t at = ((2 * h + tap / 2) * 6 + 2 * w + tap % 2) * channels + c;
        const bool nan = std::isnan(x[at]) && !std::isnan(best < 0 ? 0 : x[best]);
        if (best < 0 || nan || x[at] > x[best]) best = at;
      }
      y.push_back(x[best]);
      dx[best] = dy[i];
    }
    const auto got = RunOnce(
        Cpu(), graph, {{"x", HostTensor::FromDoubles(Nhwc(in), x)}, {"dy", HostTensor::FromDoubles(Nhwc(out), dy)}});
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_TRUE(got[0].At(i) == y[i] || (std::isnan(got[0].At(i)) && std::isnan(y[i]))) << i;
    for (size_t i = 0; i < dx.size(); ++i) ASSERT_EQ(got[1].At(i), dx[i]) << i << " of " << channels;
  }
}

TEST(CpuChannelsLast, RecomputedBatchNormIsBitIdentical) {
  Cpu();  // brings the operators
  for (const auto& [activation, adds] : {std::pair("", false), {"Relu", false}, {"", true}, {"Relu", true}}) {
    Graph graph;
    Builder b(&graph);
    std::vector<Val> inputs = {b.Input(InputKind::kFeed, "x", Nhwc({5, 21, 7, 9})), Channels(b, "scale", 21),
                               Channels(b, "bias", 21)};
    if (adds) inputs.push_back(b.Input(InputKind::kFeed, "residual", Nhwc({5, 21, 7, 9})));
    const Attrs attrs = {{"epsilon", 1e-3}, {"activation", std::string(activation)}};
    const auto norm = b.Ops("cpu.BatchNorm", inputs, attrs);
    inputs.insert(inputs.end(), norm.begin() + 1, norm.end());
    graph.AddOutput("once", norm[0].id());
    graph.AddOutput("again", b.Op("cpu.BatchNormRecompute", inputs, attrs).id());
    ASSERT_TRUE(b.status().ok()) << b.status().message();
    const std::vector<HostTensor> results = RunOnce(Cpu(), graph, RandomInputs(graph));
    for (int64_t i = 0; i < results[0].size(); ++i) ASSERT_EQ(results[0].At(i), results[1].At(i)) << i << activation;
  }
}

TEST(CpuChannelsLast, GroupsAndOneOrThreeAxes) {
  for (const auto& [x, w, group] : {std::tuple(Shape{2, 8, 9, 9}, Shape{8, 1, 3, 3}, 8),
                                    {Shape{2, 6, 9, 9}, Shape{4, 3, 3, 3}, 2},
                                    {Shape{2, 6, 17}, Shape{5, 6, 3}, 1},
                                    {Shape{2, 3, 5, 6, 7}, Shape{4, 3, 3, 3, 3}, 1}}) {
    Graph graph;
    Builder b(&graph);
    const size_t axes = x.size() - 2;
    const Attrs attrs = {{"strides", Ints(axes, 1)},
                         {"pads", Ints(2 * axes, 1)},
                         {"dilations", Ints(axes, 1)},
                         {"group", int64_t{group}}};
    const Val y =
        b.Op("Conv", {b.Input(InputKind::kFeed, "x", F(x)), b.Input(InputKind::kParameter, "w", F(w))}, attrs);
    const Val relu = b.Op("Relu", {y - 1.0});
    Attrs weights = attrs, back = attrs;
    weights.Set("kernel_shape", Ints(w.begin() + 2, w.end()));
    back.Set("output_shape", Ints(x.begin() + 2, x.end()));
    graph.AddOutput("y", relu.id());
    graph.AddOutput("dw", b.Op("ConvWeightGrad", {b.Wrap(0), relu}, weights).id());
    graph.AddOutput("dx", b.Op("ConvTranspose", {relu, b.Wrap(1)}, back).id());
    CheckAgainstNodes(graph);
  }
}

// Widened bf16 is multiplied as bf16, which is exact, and added up in float32.
// Where output channels fill vectors, every thread has its share of the weights' gradient.
class WidenedFactors : public testing::TestWithParam<int64_t> {};

TEST_P(WidenedFactors, AreMultipliedNarrow) {
  const int64_t channels = GetParam();
  Graph graph;
  Builder b(&graph);
  const auto rounded = [&](const std::string& name, Shape shape) {
    return Cast(Cast(b.Input(InputKind::kFeed, name, F(std::move(shape))), DType::kBFloat16), DType::kFloat32);
  };
  const Val x = rounded("x", {2, 20, 9, 8}), bias = b.Input(InputKind::kFeed, "b", F({channels}));
  for (const int64_t kernel : {1, 3}) {
    const Val w = rounded(StrCat("w", kernel), {channels, 20, kernel, kernel}),
              dy = rounded(StrCat("dy", kernel), {2, channels, 9, 8});
    Attrs attrs = ConvAttrs(1, kernel / 2), back = attrs, weights = attrs;
    back.Set("output_shape", Ints{9, 8});
    weights.Set("kernel_shape", Ints{kernel, kernel});
    for (const Val& v : {b.Op("Conv", {x, w, bias}, attrs), b.Op("ConvTranspose", {dy, w}, back),
                         b.Op("ConvWeightGrad", {x, dy}, weights)}) {
      graph.AddOutput(StrCat("v", v.id()), v.id());
    }
  }
  ASSERT_TRUE(b.status().ok()) << b.status().message();
  const Graph legal = CheckAgainstNodes(graph);
  int64_t narrow = 0;
  for (const Node& node : legal.nodes()) {
    narrow += node.op != "Cast" && node.op != "Transpose" && node.op != "Reshape" && node.op != "cpu.View" &&
              !node.op.starts_with("cpu.Pack") && legal.type(node.inputs[0]).dtype == DType::kBFloat16;
  }
  if (narrow == 0) GTEST_SKIP() << "this processor multiplies no bf16";
  EXPECT_EQ(narrow, 6) << Print(legal);
}

INSTANTIATE_TEST_SUITE_P(CpuChannelsLast, WidenedFactors, testing::Values(12, 64));

// A convolution, a normalization with its Relu and the gradients of both as mixed precision writes them; or, `wide`,
// the same in float32, where nothing but what is kept as bf16 is rounded: factors, what is normalized and gradients of
// both.
Graph RoundedBlock(bool wide) {
  Graph graph;
  Builder b(&graph);
  const auto low = [&](Val v) {
    return wide ? Cast(Cast(v, DType::kBFloat16), DType::kFloat32) : Cast(v, DType::kBFloat16);
  };
  const auto high = [&](Val v) { return Cast(v, DType::kFloat32); };
  const auto input = [&](const std::string& name, Shape shape) {
    return b.Input(InputKind::kParameter, name, F(std::move(shape)));
  };
  const Val x = low(b.Input(InputKind::kFeed, "x", F({2, 16, 12, 10}))), w = low(input("w", {20, 16, 3, 3})),
            s = Channels(b, "scale", 20);
  const Val z = high(low(b.Op("Conv", {x, w}, ConvAttrs(1, 1))));
  const auto norm = b.Ops("BatchNorm", {z, s, Channels(b, "bias", 20) - 0.6}, {{"epsilon", 1e-3}});
  const Val y = b.Op("Relu", {wide ? norm[0] : low(norm[0])});
  const Val next = wide ? low(y) : y;
  graph.AddOutput("y", high(b.Op("Conv", {next, low(input("v", {9, 20, 3, 3}))}, ConvAttrs(1, 1))).id());
  const Val dy = low(b.Input(InputKind::kFeed, "dy", F({2, 20, 12, 10}))), zero = b.Scalar(next.dtype(), 0);
  const auto grads = b.Ops("BatchNormGrad", {high(Where(Greater(next, zero), dy, zero)), z, s, norm[1], norm[2]});
  Attrs weights = ConvAttrs(1, 1);
  weights.Set("kernel_shape", Ints{3, 3});
  graph.AddOutput("dw", high(b.Op("ConvWeightGrad", {x, low(grads[0])}, weights)).id());
  EXPECT_TRUE(b.status().ok()) << b.status().message();
  return graph;
}

TEST(CpuChannelsLast, NothingIsRoundedForNothing) {
  const Graph halves = RoundedBlock(false), wide = RoundedBlock(true);
  const Graph fused = CompileGraph(Cpu(), halves).graph();
  const bool narrow = std::any_of(fused.nodes().begin(), fused.nodes().end(), [&](const Node& n) {
    return n.op == "Conv" && fused.type(n.inputs[0]).dtype == DType::kBFloat16;
  });
  if (!narrow) GTEST_SKIP() << "this processor multiplies no bf16";
  const auto inputs = RandomInputs(halves);
  const auto got = RunOnce(Cpu(), halves, inputs), want = RunOnce(Cpu(), wide, inputs);
  for (size_t o = 0; o < got.size(); ++o) {
    for (int64_t i = 0; i < got[o].size(); ++i) {
      // A last bit of the convolution can turn a rounding of what follows; a rounded result would be off by 1e-3 of
      // itself.
      ASSERT_NEAR(got[o].At(i), want[o].At(i), 1e-4 * std::max(1.0, std::abs(want[o].At(i)))) << o << " at " << i;
    }
  }
  const auto activations = std::count_if(fused.nodes().begin(), fused.nodes().end(),
                                         [](const Node& n) { return n.attrs.String("activation") == "Relu"; });
  EXPECT_EQ(activations, 2) << Print(fused);
  EXPECT_EQ(Count(fused, "Where"), 0) << Print(fused);
  for (const Node& node : fused.nodes()) {
    const bool stored = node.op == "cpu.BatchNorm" || node.op == "cpu.BatchNormGrad";
    EXPECT_TRUE(!stored || fused.type(node.outputs[0]).dtype == DType::kBFloat16) << node.op;
  }
}

Val Low(Val v) { return Cast(v, DType::kBFloat16); }
Val High(Val v) { return Cast(v, DType::kFloat32); }

// From 6×8 pixels to twice as many along both axes.
Attrs MakeResample2xAttrs(bool linear) {
  return {{"axes", Ints{2, 3}},
          {"sizes", Ints{12, 16}},
          {"position", std::vector<double>{0.5, 1, 2, -0.5, 0.5, 1, 2, -0.5}},
          {"stretch", std::vector<double>{1, 1}},
          {"mode", std::string(linear ? "linear" : "nearest")}};
}

Attrs MakeResample2xGradAttrs(bool linear) {
  Attrs attrs = MakeResample2xAttrs(linear);
  attrs.Set("input_sizes", Ints{6, 8});
  return attrs;
}

// The gradient of 30 rows made of 6: more terms than one pass adds.
Attrs MakeResample5xAttrs() {
  return {{"axes", Ints{2}},
          {"sizes", Ints{30}},
          {"input_sizes", Ints{6}},
          {"position", std::vector<double>{0.5, 1, 5, -0.5}},
          {"stretch", std::vector<double>{1}},
          {"mode", std::string("nearest")}};
}

// Each kernel that reads and writes bf16 itself gives what it gives in float32, rounded once; in place of the casts
// around it.
void CheckBf16Kernels(bool apart) {
  const Shape shape = {2, 21, 6, 8};  // no whole vector of channels
  const Attrs pool = {
      {"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}, {"dilations", Ints{1, 1}}};
  Graph graph;
  Builder b(&graph);
  Attrs p = pool;
  if (apart) p.Set("kernel_shape", Ints{2, 2}), p.Set("pads", Ints{0, 0, 0, 0});
  Attrs back = p;
  back.Set("input_shape", shape);
  const auto half = [&](const std::string& name, Shape s) {
    return Low(b.Input(InputKind::kFeed, name, Nhwc(std::move(s))));
  };
  const Val x = half("x", shape), residual = half("residual", shape), dy = half("dy", shape),
            small = half("small", {2, 21, 3, 4});
  const Val s = Channels(b, "scale", 21), t = Channels(b, "bias", 21);
  const Attrs relu = {{"epsilon", 1e-3}, {"activation", std::string("Relu")}};
  const auto norm = b.Ops("cpu.BatchNorm", {High(x), s, t, High(residual)}, relu);
  const auto plain = b.Ops("cpu.BatchNorm", {High(x), s, t}, {{"epsilon", 1e-3}});
  const Val fixed = b.Op("BatchNormInference", {High(x), s, t, norm[1], norm[2]}, {{"epsilon", 1e-3}});
  const auto grads =
      b.Ops("cpu.BatchNormGrad", {High(dy), High(x), s, norm[1], norm[2], t}, {{"activation", std::string("Relu")}});
  const auto most = b.Ops("MaxPool", {High(x)}, WithIndexInWindow(p));
  const Val spread = b.Op("MaxPoolGrad", {High(small), most[1]}, back);
  const Val mean = b.Op("AveragePool", {High(x)}, p), shared = b.Op("AveragePoolGrad", {High(small)}, back);
  const Val wide = b.Op("Resample", {High(x)}, MakeResample2xAttrs(apart)),
            narrow = b.Op("ResampleGrad", {High(half("twice", {2, 21, 12, 16}))}, MakeResample2xGradAttrs(apart));
  const Val far = b.Op("ResampleGrad", {High(half("thrice", {2, 21, 30, 8}))}, MakeResample5xAttrs());
  const Val single = b.Op("Resample", {High(half("gray", {2, 1, 6, 8}))}, MakeResample2xAttrs(apart));  // in float32
  for (const Val& v : {norm[0], plain[0], fixed, grads[0], most[0], spread, mean, shared, wide, narrow, far, single}) {
    graph.AddOutput(StrCat("v", v.id()), High(Low(v)).id());
  }
  for (const Val& v : {norm[1], norm[2], grads[1], grads[2]}) graph.AddOutput(StrCat("v", v.id()), v.id());
  ASSERT_TRUE(b.status().ok()) << b.status().message();
  const Graph legal = CheckAgainstNodes(graph);
  int64_t blend_bf16 = 0;
  for (const Node& node : legal.nodes())
    blend_bf16 += node.op != "Cast" && legal.type(node.outputs[0]).dtype == DType::kBFloat16;
  EXPECT_EQ(blend_bf16, 11) << Print(legal);
}

TEST(CpuChannelsLast, KernelsTakeHalvesAsTheyAre) {
  Cpu();  // brings the operators
  ForEachTarget([] {
    for (const bool apart : {false, true}) CheckBf16Kernels(apart);
  });
}

TEST(CpuChannelsLast, ReluIsComputedWithWhatItFollows) {
  Graph graph;
  Builder b(&graph);
  const Val x = Conv(b.Input(InputKind::kFeed, "x", F({2, 3, 12, 10})), "w", 20, 3);
  const Val s = Channels(b, "scale", 20);
  const auto norm = b.Ops("BatchNorm", {x, s, Channels(b, "bias", 20) - 0.6}, {{"epsilon", 1e-3}});
  const Val y = b.Op("Relu", {norm[0]});
  const Val dy = b.Op("Relu", {Conv(y, "v", 20, 3) - 10.0});
  const Val zero = b.Scalar(DType::kFloat32, 0);
  const auto grads = b.Ops("BatchNormGrad", {Where(Greater(y, zero), dy, zero), x, s, norm[1], norm[2]});
  graph.AddOutput("dx", Conv(grads[0], "u", 4, 1).id());
  for (const Val& v : {grads[1], grads[2], norm[1]}) graph.AddOutput(StrCat("v", v.id()), v.id());
  graph.AddOutput("z", ReduceSum(b.Op("Relu", {Conv(y, "t", 9, 3)}), {2, 3}).id());
  ASSERT_TRUE(b.status().ok()) << b.status().message();
  const Graph legal = CheckAgainstNodes(graph);
  const auto fused = std::count_if(legal.nodes().begin(), legal.nodes().end(),
                                   [](const Node& n) { return n.attrs.String("activation") == "Relu"; });
  EXPECT_EQ(fused, 3) << Print(legal);
  EXPECT_EQ(Count(legal, "Where"), 0) << Print(legal);
}

// The end of a residual block: of two normalizations that are added, the second takes the first; a sum with more
// readers than the Relu is written.
TEST(CpuChannelsLast, ResidualIsAddedByTheNormalization) {
  Graph graph;
  Builder b(&graph);
  const Val x = Conv(b.Input(InputKind::kFeed, "x", F({2, 3, 12, 10})), "w", 20, 3);
  const auto normalized = [&](Val v, const std::string& name) {
    const auto norm =
        b.Ops("BatchNorm", {v, Channels(b, name + ".s", 20), Channels(b, name + ".b", 20) - 0.6}, {{"epsilon", 1e-3}});
    graph.AddOutput(name + ".mean", norm[1].id());
    return norm[0];
  };
  const Val first = normalized(Conv(x, "u", 20, 3), "first");
  const Val down = b.Op("Relu", {first + normalized(Conv(x, "v", 20, 1), "second")});
  const Val identity = b.Op("Relu", {normalized(Conv(down, "t", 20, 3), "third") + down});
  const Val linear = identity + normalized(Conv(identity, "r", 20, 3), "fourth");
  const Val kept = normalized(Conv(b.Op("Relu", {linear}), "q", 20, 3), "fifth");
  const Val written = kept + x;
  graph.AddOutput("end", Conv(b.Op("Relu", {written}), "p", 4, 1).id());
  for (const Val& v : {linear, written, kept})
    graph.AddOutput(StrCat("v", v.id()), Conv(v, StrCat("c", v.id()), 3, 1).id());
  ASSERT_TRUE(b.status().ok()) << b.status().message();
  const Graph legal = CheckAgainstNodes(graph);
  const auto norms = [&](bool residual, std::string_view activation) {
    return std::count_if(legal.nodes().begin(), legal.nodes().end(), [&](const Node& n) {
      return n.op == "cpu.BatchNorm" && (n.inputs.size() == 4) == residual &&
             n.attrs.String("activation") == activation;
    });
  };
  EXPECT_EQ(norms(true, "Relu"), 2) << Print(legal);  // down, identity
  EXPECT_EQ(norms(true, ""), 1) << Print(legal);      // linear
  EXPECT_EQ(norms(false, ""), 2) << Print(legal);     // first, kept
}

// Convolution, norm, activation and pool, forward and backward, up to a flat product.
TEST(CpuChannelsLast, OnlyTheEndsAreTransposed) {
  Graph graph;
  Builder b(&graph);
  const Val x = b.Input(InputKind::kFeed, "x", F({4, 3, 16, 16}));
  const Val y = Conv(x, "w1", 16, 3);
  const Val scale = Channels(b, "s", 16);
  const auto norm = b.Ops("BatchNorm", {y, scale, Channels(b, "t", 16)}, {{"epsilon", 1e-5}});
  const Val h = b.Op("Relu", {norm[0]});
  const auto pool = b.Ops("MaxPool", {h}, Windows(2, 2, 0));
  const Val mean = ReduceMean(Conv(pool[0], "w2", 32, 3), {2, 3}, false);
  const Val dh = b.Op("MaxPoolGrad", {pool[0], pool[1]}, {{"input_shape", h.shape()}});
  const Val dy = b.Ops("BatchNormGrad", {Where(Greater(h, b.Scalar(DType::kFloat32, 0)), dh, ZerosLike(dh)), y, scale,
                                         norm[1], norm[2]})[0];
  Attrs weights = ConvAttrs(1, 1);
  weights.Set("kernel_shape", Ints{3, 3});
  graph.AddOutput("mean", mean.id());
  graph.AddOutput("dw", b.Op("ConvWeightGrad", {x, dy}, weights).id());
  ASSERT_TRUE(b.status().ok()) << b.status().message();
  const Graph legal = CheckAgainstNodes(graph);
  EXPECT_EQ(Count(legal, "Transpose"), 1) << Print(legal);  // of x
}

}  // namespace
}  // namespace onnxtrain
