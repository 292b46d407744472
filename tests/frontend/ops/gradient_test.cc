// Every differentiable row of the elementwise, reduce, matmul, shape and index families against finite differences.
#include <gtest/gtest.h>

#include <set>

#include "frontend/ops/row.h"
#include "row_testing.h"

namespace onnxtrain {
namespace {

OpCase UnaryCase(const std::string& op, double low, double high, Attrs attrs = {}) {
  return {op, op, {Noise({3, 4}, low, high)}, std::move(attrs)};
}

std::vector<OpCase> UnaryCases() {
  return {
      UnaryCase("Neg", -2, 2),
      UnaryCase("Abs", -2, 2),
      UnaryCase("Relu", -2, 2),
      UnaryCase("Exp", -2, 2),
      UnaryCase("Log", 0.2, 3),
      UnaryCase("Log1p", -0.5, 3),
      UnaryCase("Expm1", -1, 1),
      UnaryCase("Sqrt", 0.2, 3),
      UnaryCase("Rsqrt", 0.2, 3),
      UnaryCase("Reciprocal", 0.3, 2),
      UnaryCase("Sin", -3, 3),
      UnaryCase("Cos", -3, 3),
      UnaryCase("Tan", -1, 1),
      UnaryCase("Asin", -0.9, 0.9),
      UnaryCase("Acos", -0.9, 0.9),
      UnaryCase("Atan", -3, 3),
      UnaryCase("Sinh", -2, 2),
      UnaryCase("Cosh", -2, 2),
      UnaryCase("Asinh", -3, 3),
      UnaryCase("Acosh", 1.2, 4),
      UnaryCase("Atanh", -0.9, 0.9),
      UnaryCase("Tanh", -2, 2),
      UnaryCase("Sigmoid", -3, 3),
      UnaryCase("Softplus", -3, 3),
      UnaryCase("Softsign", -3, 3),
      UnaryCase("HardSwish", -5, 5),
      UnaryCase("Mish", -3, 3),
      UnaryCase("Erf", -2, 2),
      UnaryCase("LeakyRelu", -2, 2, {{"alpha", 0.3}}),
      UnaryCase("Elu", -2, 2, {{"alpha", 0.7}}),
      UnaryCase("Celu", -2, 2, {{"alpha", 0.7}}),
      UnaryCase("Selu", -2, 2),
      UnaryCase("ThresholdedRelu", -2, 2, {{"alpha", 0.4}}),
      UnaryCase("HardSigmoid", -4, 4),
      UnaryCase("Shrink", -2, 2, {{"lambd", 0.8}, {"bias", 0.3}}),
      UnaryCase("Clip", -2, 2, {{"min", -0.8}, {"max", 1.1}}),
      UnaryCase("Clip", -2, 2, {{"max", 1.1}}),
      UnaryCase("Gelu", -3, 3),
      UnaryCase("Gelu", -3, 3, {{"approximate", std::string("tanh")}}),
      {"GeluGrad", "GeluGrad", {Noise({3, 4}, -1, 1, 2), Noise({3, 4}, -3, 3)}, {}},
      {"GeluGrad tanh",
       "GeluGrad",
       {Noise({3, 4}, -1, 1, 2), Noise({3, 4}, -3, 3)},
       {{"approximate", std::string("tanh")}}},
      UnaryCase("Cast", -2, 2, {{"to", std::string("f64")}}),
  };
}

OpCase BinaryCase(const std::string& op, double low, double high, Shape a, Shape b, Attrs attrs = {}) {
  return {op, op, {Noise(std::move(a), low, high, 3), Noise(std::move(b), low, high, 4)}, std::move(attrs)};
}

std::vector<OpCase> BinaryCases() {
  std::vector<OpCase> cases;
  for (const char* op : {"Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Mod", "PRelu"}) {
    const bool signs = std::string(op) == "PRelu";
    cases.push_back(BinaryCase(op, signs ? -2 : 0.3, 2.5, {2, 3}, {2, 3}));
    cases.push_back(BinaryCase(op, signs ? -2 : 0.3, 2.5, {2, 1, 3}, {4, 1}));
    cases.push_back(BinaryCase(op, signs ? -2 : 0.3, 2.5, {}, {3}));
  }
  cases.push_back(BinaryCase("Mod", -2, 2, {5}, {5}, {{"fmod", int64_t{1}}}));
  cases.push_back({"Where", "Where", {Bools({2, 1}, {1, 0}), Noise({2, 3}, -1, 1), Noise({3}, -1, 1, 5)}, {}});
  return cases;
}

std::vector<OpCase> ReduceCases() {
  std::vector<OpCase> cases;
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"}) {
    for (int64_t keepdims : {0, 1}) {
      cases.push_back({op, op, {Noise({2, 3, 4}, 0.5, 2)}, {{"axes", Ints{0, 2}}, {"keepdims", keepdims}}});
      cases.push_back({op, op, {Noise({2, 3}, 0.5, 2)}, {{"keepdims", keepdims}}});
    }
  }
  cases.push_back({"no zero, one, two", "ReduceProd", {F64({3, 3}, {1, 2, 3, 4, 0, 5, 0, 0, 6})}, {{"axes", Ints{1}}}});
  cases.push_back({"SquaredNorm", "SquaredNorm", {Noise({2, 3}, -1, 1)}, {}});
  for (int64_t exclusive : {0, 1}) {
    for (int64_t reverse : {0, 1}) {
      cases.push_back({"CumSum",
                       "CumSum",
                       {Noise({2, 3, 2}, -1, 1)},
                       {{"axis", int64_t{1}}, {"exclusive", exclusive}, {"reverse", reverse}}});
    }
  }
  return cases;
}

OpCase MatMulCase(Shape a, Shape b, bool trans_a, bool trans_b) {
  if (trans_a) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (trans_b) std::swap(b[b.size() - 1], b[b.size() - 2]);
  const std::string name = "MatMul " + ToString(a) + ToString(b);
  return {name,
          "MatMul",
          {Noise(a, -1, 1, 6), Noise(b, -1, 1, 7)},
          {{"trans_a", int64_t{trans_a}}, {"trans_b", int64_t{trans_b}}}};
}

std::vector<OpCase> MatMulCases() {
  std::vector<OpCase> cases;
  for (bool trans_a : {false, true}) {
    for (bool trans_b : {false, true}) {
      cases.push_back(MatMulCase({2, 3}, {3, 4}, trans_a, trans_b));
      cases.push_back(MatMulCase({2, 2, 2, 3}, {3, 4}, trans_a, trans_b));     // a shared weight
      cases.push_back(MatMulCase({2, 2, 3}, {1, 3, 2}, trans_a, trans_b));     // the same with a batch axis of 1
      cases.push_back(MatMulCase({2, 3}, {2, 3, 2}, trans_a, trans_b));        // a is shared
      cases.push_back(MatMulCase({2, 1, 2, 3}, {3, 3, 2}, trans_a, trans_b));  // batches broadcast both ways
    }
  }
  return cases;
}

std::vector<OpCase> ShapeCases() {
  const HostTensor x = Noise({2, 3, 4}, -1, 1);
  const Attrs window{{"starts", Ints{0, 2, 3}}, {"sizes", Ints{2, 2, 2}}, {"steps", Ints{1, -1, -2}}};
  Attrs scatter = window;
  scatter.Erase("sizes");
  scatter.Set("input_shape", Ints{2, 3, 4});
  return {
      {"Reshape", "Reshape", {x}, {{"shape", Ints{4, 6}}}},
      {"Transpose", "Transpose", {x}, {{"perm", Ints{2, 0, 1}}}},
      {"Expand", "Expand", {Noise({3, 1}, -1, 1)}, {{"shape", Ints{2, 3, 4}}}},
      {"Concat", "Concat", {x, Noise({2, 1, 4}, -1, 1, 8), Noise({2, 0, 4}, -1, 1)}, {{"axis", int64_t{1}}}},
      {"Split", "Split", {x}, {{"axis", int64_t{2}}, {"sizes", Ints{1, 3}}, {"num_outputs", int64_t{2}}}},
      {"Slice", "Slice", {x}, window},
      {"SliceGrad", "SliceGrad", {Noise({2, 2, 2}, -1, 1)}, scatter},
      {"Pad", "Pad", {x}, {{"pads", Ints{1, 0, 2, 0, 1, 0}}, {"value", 3.0}}},
  };
}

std::vector<OpCase> IndexCases() {
  const HostTensor x = Noise({3, 4}, -1, 1), index = I64({2, 2}, {0, -1, 2, 2});
  return {
      {"Gather 0", "Gather", {x, index}, {{"axis", int64_t{0}}}},
      {"Gather 1", "Gather", {x, index}, {{"axis", int64_t{1}}}},
      {"Gather scalar", "Gather", {x, I64({}, {1})}, {{"axis", int64_t{1}}}},
      {"GatherGrad",
       "GatherGrad",
       {Noise({2, 2, 4}, -1, 1), index},
       {{"axis", int64_t{0}}, {"input_shape", Ints{3, 4}}}},
      {"GatherElements", "GatherElements", {x, index}, {{"axis", int64_t{1}}}},
      {"GatherElementsGrad",
       "GatherElementsGrad",
       {Noise({2, 2}, -1, 1), index},
       {{"axis", int64_t{1}}, {"input_shape", Ints{3, 4}}}},
  };
}

std::vector<OpCase> AllCases() {
  std::vector<OpCase> all;
  for (auto part : {UnaryCases, BinaryCases, ReduceCases, MatMulCases, ShapeCases, IndexCases}) {
    for (OpCase& c : part()) all.push_back(std::move(c));
  }
  return all;
}

TEST(Gradient, AgreesWithFiniteDifferences) {
  for (const OpCase& c : AllCases()) CheckGradient(c);
}

TEST(Gradient, EveryDifferentiableRowHasACase) {
  std::set<std::string_view> covered;
  const std::vector<OpCase> cases = AllCases();
  for (const OpCase& c : cases) covered.insert(c.op);
  for (auto family : {ElementwiseOps, ReduceOps, MatmulOps, ShapeOps, IndexOps}) {
    for (const OpRow& row : family()) {
      const bool has_formula = row.grad_status == GradStatus::kFormula || row.grad_status == GradStatus::kDecomposition;
      EXPECT_EQ(has_formula, covered.count(row.name) == 1) << row.name;
      EXPECT_NE(row.evaluate, nullptr) << row.name;
      EXPECT_EQ(row.gradient != nullptr, row.grad_status == GradStatus::kFormula) << row.name;
    }
  }
}

}  // namespace
}  // namespace onnxtrain
