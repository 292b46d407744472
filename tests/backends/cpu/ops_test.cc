// Every kernel of the cpu backend against the host's evaluation of the operator or of its decomposition.
#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/graph/text_form.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/host_eval.h"
#include "tests/backends/cpu/testing.h"

namespace onnxtrain {
namespace {

Type F(Shape shape) { return {DType::kFloat32, std::move(shape)}; }
Type I(Shape shape) { return {DType::kInt64, std::move(shape)}; }
Type B(Shape shape) { return {DType::kBool, std::move(shape)}; }

struct Case {
  std::string op;
  std::vector<Type> inputs;
  Attrs attrs = {};
  double low = -2, high = 2;
  double tolerance = 2e-6;  // relative to the larger of the value and `scale`
  double scale = 1e-3;
};

std::string Describe(const Case& c) {
  std::string text = c.op;
  for (const Type& t : c.inputs) StrAppend(&text, " ", ToString(t));
  return text;
}

Graph SingleNodeImporter(const Case& c) {
  Graph graph;
  Builder b(&graph);
  std::vector<Val> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) inputs.push_back(b.Input(InputKind::kFeed, StrCat("x", i), c.inputs[i]));
  const auto outputs = b.Ops(c.op, inputs, c.attrs);
  EXPECT_TRUE(b.status().ok()) << b.status().message();
  for (size_t o = 0; o < outputs.size(); ++o) graph.AddOutput(StrCat("y", o), outputs[o].id());
  return graph;
}

void Check(const Case& c) {
  SCOPED_TRACE(Describe(c));
  std::mt19937 random(11);
  const Graph graph = SingleNodeImporter(c);
  std::map<std::string, HostTensor> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i)
    inputs[StrCat("x", i)] = RandomTensor(c.inputs[i], random, c.low, c.high);
  auto want = Interpret(graph, inputs);
  ASSERT_TRUE(want.ok()) << want.status().message();
  const auto got = RunOnce(Cpu(), graph, inputs);
  for (size_t o = 0; o < got.size(); ++o) ExpectClose(got[o], (*want)[o], c.tolerance, c.scale);
}

TEST(CpuOps, Unary) {
  for (const char* op :
       {"Neg",  "Abs",         "Sign",   "Exp",  "Expm1",   "Sin",       "Cos",      "Tan",      "Atan",
        "Sinh", "Cosh",        "Asinh",  "Tanh", "Sigmoid", "Relu",      "Softplus", "Softsign", "HardSwish",
        "Mish", "Erf",         "Floor",  "Ceil", "Round",   "LeakyRelu", "Elu",      "Celu",     "ThresholdedRelu",
        "Selu", "HardSigmoid", "Shrink", "Gelu"}) {
    Check({op, {F({3, 7, 11})}});
    // Near the far end of a tail the error is relative to the terms that cancel there.
    Check({op, {F({1000})}, {}, -9, 9, 4e-6, 1e-1});
    Check({op, {F({40000})}, {}, -0.01, 0.01, 2e-6, 1e-6});
  }
  for (const char* op : {"Log", "Sqrt", "Rsqrt", "Reciprocal", "Log1p"}) {
    Check({op, {F({3, 7, 11})}, {}, 0.01, 3, 2e-6, 1e-6});
    Check({op, {F({1000})}, {}, 0.01, 1e6});
  }
  for (const char* op : {"Asin", "Acos", "Atanh"}) Check({op, {F({100})}, {}, -0.99, 0.99});
  Check({"Log1p", {F({1000})}, {}, -0.9, 1e-2, 2e-6, 1e-6});
  Check({"Acosh", {F({100})}, {}, 1.01, 9});
  Check({"Exp", {F({1000})}, {}, -100, 88, 4e-6, 1e-38});
  Check({"Expm1", {F({1000})}, {}, -30, 88, 4e-6});
  Check({"Gelu", {F({1000})}, {{"approximate", std::string("tanh")}}, -5, 5, 1e-5, 1e-1});
  Check({"GeluGrad", {F({1000}), F({1000})}, {}, -5, 5, 1e-5, 1});
  Check({"GeluGrad", {F({1000}), F({1000})}, {{"approximate", std::string("tanh")}}, -5, 5, 1e-5, 1});
  Check({"Clip", {F({100})}, {{"min", -0.5}, {"max", 1.0}}});
  Check({"IsNaN", {F({100})}});
  Check({"IsInf", {F({100})}});
  Check({"Not", {B({100})}});
}

TEST(CpuOps, SpecialValues) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const char* op : {"Exp", "Log", "Log1p", "Expm1", "Tanh", "Sigmoid", "Relu", "Softplus", "Erf", "IsNaN", "IsInf",
                         "Sqrt", "Sign", "Elu", "ThresholdedRelu", "Shrink"}) {
    const Case c{op, {F({8})}};
    SCOPED_TRACE(op);
    const std::map<std::string, HostTensor> inputs = {
        {"x0", HostTensor::FromDoubles(F({8}), std::vector<double>{inf, -inf, nan, 0, 1e-40, 200, -200, -1})}};
    auto want = Interpret(SingleNodeImporter(c), inputs);
    ASSERT_TRUE(want.ok());
    ExpectClose(RunOnce(Cpu(), SingleNodeImporter(c), inputs)[0], (*want)[0], 1e-5, 1e-38);
  }
}

TEST(CpuOps, Binary) {
  const std::vector<std::vector<Type>> shapes = {
      {F({3, 4}), F({3, 4})},    {F({3, 4}), F({4})},       {F({3, 4}), F({})},
      {F({1}), F({5, 2})},       {F({3, 1}), F({1, 4})},    {F({2, 3, 4, 5}), F({3, 1, 1})},
      {F({2, 1, 4}), F({3, 1})}, {F({200, 300}), F({300})}, {F({0, 3}), F({3})},
  };
  for (const char* op : {"Add", "Sub", "Mul", "Div", "Min", "Max", "PRelu", "Equal", "Less", "LessOrEqual", "Greater",
                         "GreaterOrEqual"}) {
    for (const auto& inputs : shapes) Check({op, inputs});
  }
  for (const auto& inputs : shapes) Check({"Pow", inputs, {}, 0.1, 2});
  for (const auto& inputs : shapes) Check({"Mod", inputs, {{"fmod", int64_t{1}}}});
  Check({"BinaryCrossEntropyWithLogits", {F({64}), F({64})}, {}, -5, 5, 4e-6});
  for (const char* op : {"Add", "Sub", "Mul", "Div", "Min", "Max", "Mod", "Equal", "Less", "GreaterOrEqual"}) {
    Check({op, {I({3, 1}), I({1, 4})}, {}, 1, 50});
  }
  for (const char* op : {"And", "Or", "Xor", "Equal"}) Check({op, {B({3, 1}), B({1, 4})}});
  Check({"Where", {B({3, 4}), F({3, 4}), F({4})}});
  Check({"Where", {B({}), F({3, 4}), F({3, 4})}});
  Check({"Where", {B({3, 1}), I({}), I({3, 4})}});
}

TEST(CpuOps, Cast) {
  for (const char* to : {"f32", "f16", "bf16", "i8", "i32", "i64", "u8", "bool"}) {
    Check({"Cast", {F({100})}, {{"to", std::string(to)}}, 0, 50});
    Check({"Cast", {I({100})}, {{"to", std::string(to)}}, 0, 50});
    Check({"Cast", {B({100})}, {{"to", std::string(to)}}});
  }
}

TEST(CpuOps, Reduce) {
  const std::vector<std::vector<int64_t>> axes = {{}, {0}, {1}, {2}, {3}, {0, 2}, {1, 3}, {0, 2, 3}, {0, 1, 2, 3}};
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"}) {
    for (const auto& a : axes) {
      for (int64_t keep : {0, 1}) Check({op, {F({3, 5, 7, 9})}, {{"axes", a}, {"keepdims", keep}}, 0.9, 1.1});
    }
    Check({op, {F({0, 3})}, {{"axes", std::vector<int64_t>{1}}}});
  }
  Check({"ReduceSum", {F({1000000})}, {}, -1, 1});
  Check({"ReduceSum", {F({700, 600})}, {{"axes", std::vector<int64_t>{0}}}});
  Check({"ReduceSum", {F({2, 300000})}, {{"axes", std::vector<int64_t>{1}}}});
  Check({"ReduceSum", {I({40, 3})}, {{"axes", std::vector<int64_t>{0}}}, -100, 100});
  Check({"ReduceMax", {I({40, 3})}, {{"axes", std::vector<int64_t>{1}}}, -100, 100});
  for (int64_t axis : {0, 1, 2}) {
    Check({"ArgMax", {F({5, 6, 7})}, {{"axis", axis}}});
    Check({"ArgMax", {I({3, 700})}, {{"axis", int64_t{1}}, {"select_last_index", axis & 1}}, -3, 3});
    Check({"ArgMin", {I({5, 6, 7})}, {{"axis", axis}, {"keepdims", int64_t{0}}, {"select_last_index", int64_t{1}}}});
    for (int64_t flag : {0, 1})
      Check({"CumSum", {F({5, 6, 7})}, {{"axis", axis}, {"exclusive", flag}, {"reverse", 1 - flag}}});
  }
}

TEST(CpuOps, MatMul) {
  const auto t = [](int64_t a, int64_t b) { return Attrs{{"trans_a", a}, {"trans_b", b}}; };
  Check({"MatMul", {F({5, 7}), F({7, 3})}, t(0, 0), -2, 2, 2e-6, 1});
  Check({"MatMul", {F({7, 5}), F({7, 3})}, t(1, 0), -2, 2, 2e-6, 1});
  Check({"MatMul", {F({5, 7}), F({3, 7})}, t(0, 1), -2, 2, 2e-6, 1});
  Check({"MatMul", {F({7, 5}), F({3, 7})}, t(1, 1), -2, 2, 2e-6, 1});
  Check({"MatMul", {F({2, 4, 5, 7}), F({7, 3})}, t(0, 0), -2, 2, 2e-6, 1});
  Check({"MatMul", {F({2, 4, 7, 5}), F({7, 3})}, t(1, 0), -2, 2, 2e-6, 1});
  Check({"MatMul", {F({2, 4, 5, 7}), F({2, 4, 3, 7})}, t(0, 1), -2, 2, 2e-6, 1});
  Check({"MatMul", {F({2, 1, 5, 7}), F({4, 7, 3})}, t(0, 0), -2, 2, 2e-6, 1});
  Check({"MatMul", {F({5, 7}), F({4, 7, 3})}, t(0, 0), -2, 2, 2e-6, 1});
  Check({"MatMul", {F({1, 1}), F({1, 1})}, t(0, 0), -2, 2, 2e-6, 1});
  Check({"MatMul", {F({3, 0}), F({0, 2})}, t(0, 0), -2, 2, 2e-6, 1});
  Check({"MatMul", {F({65, 130}), F({130, 70})}, t(0, 0), -2, 2, 2e-6, 10});
  Check({"MatMul", {I({2, 5, 7}), I({7, 3})}, t(0, 0), -9, 9});
  Check({"MatMul", {I({2, 7, 5}), I({2, 3, 7})}, t(1, 1), -9, 9});
}

TEST(CpuOps, BatchNormalization) {
  for (const Shape& x : {Shape{6, 5}, {4, 5, 9}, {4, 5, 3, 7}, {300, 270}}) {
    const int64_t c = x[1];
    Check({"BatchNorm", {F(x), F({c}), F({c})}, {}, -2, 2, 1e-5, 1e-1});
    Check({"BatchNormGrad", {F(x), F(x), F({c}), F({c}), F({c})}, {}, 0.5, 2, 1e-5, 1});
    Check({"BatchNormInference", {F(x), F({c}), F({c}), F({c}), F({c})}, {}, 0.5, 2, 1e-5, 1e-1});
  }
}

void CheckRowNorms() {
  for (int64_t axis : {1, 2}) {
    const Shape x = {4, 60, 33}, n(x.begin() + axis, x.end()), stat = axis == 1 ? Shape{4, 1, 1} : Shape{4, 60, 1};
    const Attrs attrs = {{"axis", axis}};
    Check({"LayerNorm", {F(x), F(n), F(n)}, attrs, -2, 2, 1e-5, 1e-1});
    Check({"LayerNorm", {F(x), F(n)}, attrs, -2, 2, 1e-5, 1e-1});
    Check({"LayerNormGrad", {F(x), F(x), F(n), F(stat), F(stat)}, attrs, 0.5, 1.5, 1e-5, 1});
    Check({"RmsNorm", {F(x), F(n)}, attrs, -2, 2, 1e-5, 1e-1});
    Check({"RmsNormGrad", {F(x), F(x), F(n), F(stat)}, attrs, 0.5, 1.5, 1e-5, 1});
  }
}

TEST(CpuOps, RowNormalization) { ForEachTarget(CheckRowNorms); }

TEST(CpuOps, Softmax) {
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    for (int64_t axis : {0, 1, 2}) Check({op, {F({4, 5, 37})}, {{"axis", axis}}, -4, 4, 4e-6});
  }
  for (const char* op : {"SoftmaxGrad", "LogSoftmaxGrad"}) {
    for (int64_t axis : {0, 1, 2}) Check({op, {F({4, 5, 37}), F({4, 5, 37})}, {{"axis", axis}}, -1, 1, 1e-5, 1});
  }
}

TEST(CpuOps, CrossEntropy) {
  for (double smoothing : {0.0, 0.1}) {
    const Attrs attrs = {{"ignore_index", int64_t{1}}, {"label_smoothing", smoothing}};
    for (const Shape& shape : {Shape{30}, {5, 4}, {3, 2, 4}}) {
      Shape logits = shape;
      logits.insert(logits.begin() + 1, 3);
      Check({"CrossEntropy", {F(logits), I(shape)}, attrs, 0, 3, 4e-6});
      Check({"CrossEntropyGrad", {F(shape), F(logits), I(shape)}, attrs, 0, 3, 4e-6});
    }
  }
}

TEST(CpuOps, Attention) {
  const Attrs attrs = {{"scale", 0.3}};
  Check({"Attention", {F({2, 3, 5, 8}), F({2, 3, 7, 8}), F({2, 3, 7, 4})}, attrs, -1, 1, 1e-5, 1e-1});
  Check({"Attention", {F({2, 3, 5, 8}), F({2, 3, 7, 8}), F({2, 3, 7, 4}), F({2, 1, 1, 7})}, attrs, -1, 1, 1e-5, 1e-1});
}

TEST(CpuOps, Movement) {
  using Ints = std::vector<int64_t>;
  for (const Type& t : {F({2, 3, 4, 5}), I({2, 3, 4, 5}), B({2, 3, 4, 5})}) {
    for (const Ints& perm : {Ints{0, 1, 3, 2}, {3, 2, 1, 0}, {1, 0, 2, 3}, {0, 2, 1, 3}, {2, 3, 0, 1}}) {
      Check({"Transpose", {t}, {{"perm", perm}}});
    }
    Check({"Reshape", {t}, {{"shape", Ints{6, 20}}}});
    Check({"Slice", {t}, {{"starts", Ints{1, 2, 0, 4}}, {"sizes", Ints{1, 2, 2, 3}}, {"steps", Ints{1, -1, 3, -2}}}});
    Check({"Slice", {t}, {{"starts", Ints{0, 0, 1, 0}}, {"sizes", Ints{2, 3, 2, 5}}, {"steps", Ints{1, 1, 1, 1}}}});
    Check({"Concat", {t, t}, {{"axis", int64_t{2}}}});
    Check({"Split", {t}, {{"axis", int64_t{3}}, {"sizes", Ints{1, 4}}, {"num_outputs", int64_t{2}}}});
    Check({"Pad", {t}, {{"pads", Ints{0, 1, 2, 0, 1, 0, 0, 3}}, {"value", 1.0}}});
  }
  Check({"Transpose", {F({100, 300})}, {{"perm", Ints{1, 0}}}});
  Check({"Transpose", {F({3, 70, 90})}, {{"perm", Ints{2, 0, 1}}}});
  Check({"Expand", {F({3, 1, 5})}, {{"shape", Ints{2, 3, 4, 5}}}});
  Check({"Expand", {F({})}, {{"shape", Ints{70, 300}}}});
  Check({"SliceGrad",
         {F({1, 2, 2, 3})},
         {{"input_shape", Ints{2, 3, 4, 5}}, {"starts", Ints{1, 2, 0, 4}}, {"steps", Ints{1, -1, 3, -2}}}});
}

// Scores [N,T,C] that the model moves to [N,C,T] for the loss: forward, backward and the metric read them where they
// are.
TEST(CpuOps, CrossEntropyOfMovedClasses) {
  Graph graph;
  Builder b(&graph);
  const Val x = b.Input(InputKind::kFeed, "x", F({2, 5, 6})), w = b.Input(InputKind::kParameter, "w", F({7, 6})),
            label = b.Input(InputKind::kFeed, "label", I({2, 5}));
  const Val scores = Transpose(MatMul(x, w, false, true), {0, 2, 1}),
            seed = b.Input(InputKind::kFeed, "seed", F({2, 5}));
  const Attrs attrs = {{"ignore_index", int64_t{-100}}, {"label_smoothing", 0.0}};
  const std::vector<Val> loss = b.Ops("CrossEntropy", {scores, label}, attrs);
  const Val moved = Transpose(b.Op("CrossEntropyGrad", {seed, loss[1], label}, attrs), {0, 2, 1});
  graph.AddOutput("loss", loss[0].id());
  graph.AddOutput("best", b.Op("ArgMax", {scores}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}}).id());
  graph.AddOutput("dx", MatMul(moved, w).id());
  ASSERT_TRUE(b.status().ok()) << b.status().message();
  const auto legal = Cpu().Legalize(graph);
  ASSERT_TRUE(legal.ok()) << legal.status().message();
  EXPECT_TRUE(std::ranges::none_of(legal->nodes(), [](const Node& n) { return n.op == "Transpose"; })) << Print(*legal);
  std::mt19937 random(6);
  std::map<std::string, HostTensor> inputs;
  for (const GraphInput& input : graph.inputs())
    inputs[input.name] =
        RandomTensor(graph.type(input.value), random, input.name == "label" ? 0 : -2, input.name == "label" ? 7 : 2);
  const auto want = Interpret(graph, inputs);
  ASSERT_TRUE(want.ok()) << want.status().message();
  const auto got = RunOnce(Cpu(), graph, inputs);
  for (size_t o = 0; o < got.size(); ++o) {
    for (int64_t i = 0; i < got[o].size(); ++i)
      EXPECT_NEAR(got[o].At(i), (*want)[o].At(i), 1e-5) << graph.outputs()[o].name << " at " << i;
  }
}

TEST(CpuOps, Gather) {
  for (int64_t axis : {0, 1, 2}) {
    const Attrs attrs = {{"axis", axis}};
    Check({"Gather", {F({4, 5, 6}), I({2, 3})}, attrs, -4, 4});
    Check({"Gather", {I({4, 5, 6}), I({})}, attrs, 0, 4});
    const Attrs grad = {{"axis", axis}, {"input_shape", std::vector<int64_t>{4, 5, 6}}};
    Shape dy = {4, 5, 6};
    dy[axis] = 7;
    Check({"GatherGrad", {F(dy), I({7})}, grad, -4, 4});
    Check({"GatherElements", {F({4, 5, 6}), I({4, 5, 6})}, attrs, -4, 4});
    Check({"GatherElementsGrad", {F(dy), I(dy)}, grad, -4, 4, 2e-6, 1});
  }
  Check({"GatherGrad",
         {F({700, 90}), I({700})},
         {{"axis", int64_t{0}}, {"input_shape", std::vector<int64_t>{4, 90}}},
         -4,
         4,
         4e-6,
         10});
}

TEST(CpuOps, IndicesOutsideAreClamped) {
  const Case c{"Gather", {F({4, 3}), I({3})}, {{"axis", int64_t{0}}}};
  std::mt19937 random(1);
  const HostTensor x = RandomTensor(F({4, 3}), random);
  const auto y = RunOnce(Cpu(), SingleNodeImporter(c), {{"x0", x}, {"x1", HostTensor::FromInts({99, -99, 1})}})[0];
  for (int64_t k = 0; k < 3; ++k) {
    EXPECT_EQ(y.At(k), x.At(9 + k));
    EXPECT_EQ(y.At(3 + k), x.At(k));
    EXPECT_EQ(y.At(6 + k), x.At(3 + k));
  }
}

}  // namespace
}  // namespace onnxtrain
