// Host evaluation against values worked out by hand, and gradients where functions have kinks.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "frontend/base/strings.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/row.h"
#include "frontend/passes/differentiate.h"
#include "row_testing.h"

namespace onnxtrain {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

void ExpectValues(const std::string& name, const HostTensor& got, const std::vector<double>& expected) {
  ASSERT_EQ(static_cast<size_t>(got.size()), expected.size()) << name;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double value = got.At(static_cast<int64_t>(i));
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(value)) << name << "[" << i << "] = " << value;
    } else if (std::isinf(expected[i])) {
      EXPECT_EQ(value, expected[i]) << name << "[" << i << "]";
    } else {
      EXPECT_NEAR(value, expected[i], 1e-12) << name << "[" << i << "]";
    }
  }
}

struct Evaluation {
  OpCase c;
  std::vector<double> expected;
};

HostTensor V(const std::vector<double>& values) { return F64({static_cast<int64_t>(values.size())}, values); }
HostTensor W(const Ints& values) { return HostTensor::FromInts(values); }

TEST(Evaluate, Elementwise) {
  const Evaluation cases[] = {
      {{"", "Relu", {V({-1, 0, 2, kNaN})}, {}}, {0, 0, 2, kNaN}},
      {{"", "Sign", {V({-3, 0, 2, kNaN})}, {}}, {-1, 0, 1, kNaN}},
      {{"", "Round", {V({0.5, 1.5, 2.5, -0.5, -1.5})}, {}}, {0, 2, 2, 0, -2}},
      {{"", "Softplus", {V({0, 1000, -1000})}, {}}, {std::log(2.0), 1000, 0}},
      {{"", "Sigmoid", {V({0, 1000, -1000})}, {}}, {0.5, 1, 0}},
      {{"", "HardSwish", {V({-4, 0, 1, 4})}, {}}, {0, 0, 1 * (1 / 6. + 0.5), 4}},
      {{"", "Celu", {V({-1, 1})}, {{"alpha", 2.0}}}, {2 * (std::exp(-0.5) - 1), 1}},
      {{"", "Shrink", {V({-2, -0.2, 2})}, {{"lambd", 1.0}, {"bias", 0.5}}}, {-1.5, 0, 1.5}},
      {{"", "Clip", {V({-2, 0.2, 2, kNaN})}, {{"min", -1.0}, {"max", 1.0}}}, {-1, 0.2, 1, kNaN}},
      {{"", "Gelu", {V({1, -1})}, {}}, {0.8413447460685429, -0.15865525393145707}},
      {{"", "Gelu", {V({1})}, {{"approximate", std::string("tanh")}}}, {0.8411919906082768}},
      {{"", "IsInf", {V({kInf, -kInf, 1, kNaN})}, {{"detect_negative", int64_t{0}}}}, {1, 0, 0, 0}},
      {{"", "Mod", {W({-7, 7, -7, 7}), W({3, 3, -3, -3})}, {}}, {2, 1, -1, -2}},
      {{"", "Mod", {W({-7, 7, -7, 7}), W({3, 3, -3, -3})}, {{"fmod", int64_t{1}}}}, {-1, 1, -1, 1}},
      {{"", "Div", {W({-7, 7, 5}), W({2, 2, 0})}, {}}, {-3, 3, 0}},
      {{"", "Pow", {W({2, -1, 2}), W({10, -3, -1})}, {}}, {1024, -1, 0}},
      {{"", "Max", {V({1, kNaN, 2}), V({kNaN, 1, 3})}, {}}, {kNaN, kNaN, 3}},
      {{"", "PRelu", {V({-2, 3}), V({0.5, 0.5})}, {}}, {-1, 3}},
      {{"", "Less", {V({1, 2, kNaN}), V({2, 2, 2})}, {}}, {1, 0, 0}},
      {{"", "Xor", {Bools({4}, {0, 0, 1, 1}), Bools({4}, {0, 1, 0, 1})}, {}}, {0, 1, 1, 0}},
      {{"", "Where", {Bools({2, 1}, {1, 0}), V({1, 2}), F64({}, {9})}, {}}, {1, 2, 9, 9}},
      {{"", "Cast", {V({1.9, -1.9, kNaN})}, {{"to", std::string("i64")}}}, {1, -1, 0}},
      {{"", "Cast", {V({0, -0.5, 3})}, {{"to", std::string("bool")}}}, {0, 1, 1}},
  };
  for (const Evaluation& e : cases) ExpectValues(e.c.op, RunOp(e.c)[0], e.expected);
}

TEST(Evaluate, Reductions) {
  const HostTensor x = F64({2, 3}, {1, 2, 3, 4, 5, 6}), ties = F64({2, 3}, {1, 3, 3, 0, 0, -1});
  const Attrs axis0{{"axes", Ints{0}}}, axis1{{"axis", int64_t{1}}};
  Attrs last = axis1;
  last.Set("select_last_index", int64_t{1});
  const Evaluation cases[] = {
      {{"", "ReduceSum", {x}, axis0}, {5, 7, 9}},
      {{"", "ReduceMean", {x}, {}}, {3.5}},
      {{"", "ReduceProd", {x}, axis0}, {4, 10, 18}},
      {{"", "ReduceMax", {F64({0}, {})}, {}}, {-kInf}},
      {{"", "ReduceMin", {V({2, kNaN, 1})}, {}}, {kNaN}},
      {{"", "ReduceMean", {W({1, 2, 4})}, {}}, {2}},
      {{"", "ArgMax", {ties}, axis1}, {1, 0}},
      {{"", "ArgMax", {ties}, last}, {2, 1}},
      {{"", "ArgMin", {ties}, axis1}, {0, 2}},
      {{"", "CumSum", {x}, axis1}, {1, 3, 6, 4, 9, 15}},
      {{"", "CumSum", {x}, {{"axis", int64_t{1}}, {"exclusive", int64_t{1}}, {"reverse", int64_t{1}}}},
       {5, 3, 0, 11, 6, 0}},
      {{"", "SquaredNorm", {x}, {}}, {91}},
  };
  for (const Evaluation& e : cases) ExpectValues(e.c.op, RunOp(e.c)[0], e.expected);
}

TEST(Evaluate, ProductsShapesAndIndices) {
  const HostTensor x = F64({2, 3}, {1, 2, 3, 4, 5, 6});
  const Attrs trans_b{{"trans_b", int64_t{1}}};
  const Evaluation cases[] = {
      {{"", "MatMul", {x, x}, trans_b}, {14, 32, 32, 77}},
      {{"", "MatMul", {x, x}, {{"trans_a", int64_t{1}}}}, {17, 22, 27, 22, 29, 36, 27, 36, 45}},
      {{"", "MatMul", {I64({1, 2}, {2, 3}), I64({2, 1}, {5, 7})}, {}}, {31}},
      {{"", "MatMul", {F64({2, 0}, {}), F64({0, 1}, {})}, {}}, {0, 0}},
      {{"", "Transpose", {x}, {{"perm", Ints{1, 0}}}}, {1, 4, 2, 5, 3, 6}},
      {{"", "Expand", {F64({2, 1}, {1, 2})}, {{"shape", Ints{2, 2}}}}, {1, 1, 2, 2}},
      {{"", "Concat", {x, F64({2, 1}, {7, 8})}, {{"axis", int64_t{1}}}}, {1, 2, 3, 7, 4, 5, 6, 8}},
      {{"", "Slice", {x}, {{"starts", Ints{1, 2}}, {"sizes", Ints{2, 2}}, {"steps", Ints{-1, -2}}}}, {6, 4, 3, 1}},
      {{"", "SliceGrad", {V({1, 2})}, {{"input_shape", Ints{4}}, {"starts", Ints{3}}, {"steps", Ints{-2}}}},
       {0, 2, 0, 1}},
      {{"", "Pad", {V({1, 2})}, {{"pads", Ints{1, 2}}, {"value", 9.0}}}, {9, 1, 2, 9, 9}},
      {{"", "Gather", {x, W({2, -3})}, {{"axis", int64_t{1}}}}, {3, 1, 6, 4}},
      {{"clamped", "Gather", {V({1, 2, 3}), W({7, -9})}, {}}, {3, 1}},
      {{"", "GatherGrad", {V({1, 2, 4}), W({1, 1, -1})}, {{"input_shape", Ints{3}}}}, {0, 3, 4}},
      {{"", "GatherElements", {x, I64({2, 2}, {2, 0, -1, 1})}, {{"axis", int64_t{1}}}}, {3, 1, 6, 5}},
      {{"", "GatherElementsGrad", {V({1, 2, 4}), W({0, 0, 1})}, {{"input_shape", Ints{2}}}}, {3, 4}},
  };
  for (const Evaluation& e : cases) ExpectValues(e.c.op, RunOp(e.c)[0], e.expected);
  const std::vector<HostTensor> parts =
      RunOp({"", "Split", {x}, {{"axis", int64_t{1}}, {"sizes", Ints{1, 2}}, {"num_outputs", int64_t{2}}}});
  ExpectValues("Split", parts[0], {1, 4});
  ExpectValues("Split", parts[1], {2, 3, 5, 6});
}

TEST(Evaluate, NarrowIntegersWrap) {
  const HostTensor x = HostTensor::FromInts({DType::kInt8, {2}}, Ints{100, -128});
  ExpectValues("Add", RunOp({"", "Add", {x, x}, {}})[0], {-56, 0});
  ExpectValues("Neg", RunOp({"", "Neg", {x}, {}})[0], {-100, -128});
}

// dy of ones.
std::vector<double> GradientBy(size_t input, const OpCase& c) {
  Graph graph;
  Builder b(&graph);
  std::vector<Val> vals;
  std::map<std::string, HostTensor> feeds;
  for (const HostTensor& x : c.inputs) {
    const std::string name = StrCat("x", vals.size());
    feeds.emplace(name, x);
    vals.push_back(b.Input(InputKind::kParameter, name, x.type()));
  }
  const Val y = b.Op(c.op, vals, c.attrs);
  const std::vector<ValueId> wrt{vals[input].id()};
  const auto gradients = Differentiate(&graph, y.id(), wrt);
  EXPECT_TRUE(gradients.ok()) << gradients.status();
  graph.AddOutput("dx", gradients->at(wrt[0]));
  return Interpret(graph, feeds)->at(0).ToDoubles();
}

TEST(Gradient, AtKinks) {
  using D = std::vector<double>;
  EXPECT_EQ(GradientBy(0, {"", "Relu", {V({0})}, {}}), D({0}));
  EXPECT_EQ(GradientBy(0, {"", "Abs", {V({0})}, {}}), D({0}));
  EXPECT_EQ(GradientBy(0, {"", "Clip", {V({-1, 1, 2})}, {{"min", -1.0}, {"max", 1.0}}}), D({1, 1, 0}));
  EXPECT_EQ(GradientBy(0, {"", "Max", {V({1, 2}), V({1, 1})}, {}}), D({0.5, 1}));
  EXPECT_EQ(GradientBy(1, {"", "Max", {V({1, 2}), V({1, 1})}, {}}), D({0.5, 0}));
  EXPECT_EQ(GradientBy(0, {"", "ReduceMax", {V({3, 1, 3})}, {}}), D({0.5, 0, 0.5}));
  EXPECT_EQ(GradientBy(0, {"", "ReduceProd", {V({0, 2, 3})}, {}}), D({6, 0, 0}));
  EXPECT_EQ(GradientBy(0, {"", "ReduceProd", {V({0, 2, 0})}, {}}), D({0, 0, 0}));
  EXPECT_EQ(GradientBy(0, {"", "Pow", {V({0, 0, 3}), V({0, 2, 2})}, {}}), D({0, 0, 6}));
  EXPECT_EQ(GradientBy(1, {"", "Pow", {V({0, 1}), V({2, 2})}, {}}), D({0, 0}));
  // Elu and Selu far on the linear side, where exp overflows.
  EXPECT_EQ(GradientBy(0, {"", "Elu", {V({1000})}, {}}), D({1}));
}

// The weight gradient of a batch of sequences is one matrix product, without a sum after it.
TEST(Gradient, SharedWeightIsOneProduct) {
  Graph graph;
  Builder b(&graph);
  const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {8, 16, 4}});
  const Val w = b.Input(InputKind::kParameter, "w", {DType::kFloat32, {4, 5}});
  const Val y = MatMul(x, w);
  const std::vector<ValueId> wrt{w.id()};
  const auto gradients = Differentiate(&graph, y.id(), wrt);
  ASSERT_TRUE(gradients.ok());
  const Node* node = graph.producer(gradients->at(w.id()));
  EXPECT_EQ(node->op, "MatMul");
  EXPECT_EQ(graph.type(node->inputs[0]).shape, (Shape{128, 4}));
}

}  // namespace
}  // namespace onnxtrain
