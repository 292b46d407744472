// Type rules: hand cases, and that no input whatever makes one crash.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "frontend/base/strings.h"
#include "frontend/ops/row.h"
#include "row_testing.h"

namespace onnxtrain {
namespace {

struct TypeCase {
  std::string op;
  std::vector<std::string> inputs;
  Attrs attrs;
  std::string expected;  // the types, or "error: " and the start of the message
};

// Windows of 2 elements along one axis, with one more attribute.
Attrs Pairs(std::string name, AttrValue value) {
  Attrs attrs = {{"strides", Shape{1}}, {"pads", Shape{0, 0}}, {"dilations", Shape{1}}};
  attrs.Set(std::move(name), std::move(value));
  return attrs;
}

Attrs PoolPairs(std::string name, AttrValue value) {
  Attrs attrs = Pairs(std::move(name), std::move(value));
  attrs.Set("kernel_shape", Shape{2});
  return attrs;
}

TEST(Types, HandCases) {
  const Attrs none, wide = Pairs("to", std::string("f32"));
  const TypeCase cases[] = {
      {"Add", {"f32[2,1,4]", "f32[3,1]"}, none, "f32[2,3,4]"},
      {"Add", {"f32[2]", "f64[2]"}, none, "error: inputs 0 and 1 should have one element type"},
      {"Add", {"bool[2]", "bool[2]"}, none, "error: input 0 should be of a numeric type"},
      {"Add", {"f32[2]", "f32[3]"}, none, "error: shapes [2] and [3] do not broadcast"},
      {"Equal", {"i64[2,1]", "i64[3]"}, none, "bool[2,3]"},
      {"Conv", {"bf16[1,3,9]", "bf16[4,3,2]"}, Pairs("group", int64_t{1}), "bf16[1,4,8]"},
      {"Conv", {"bf16[1,3,9]", "bf16[4,3,2]", "f32[4]"}, wide, "f32[1,4,8]"},
      {"Conv", {"bf16[1,3,9]", "bf16[4,3,2]", "bf16[4]"}, wide, "error: input 2"},
      {"Conv", {"f32[1,3,9]", "f32[4,3,2]"}, Pairs("to", std::string("bf16")), "error: no convolution of"},
      {"MaxPool", {"f32[1,3,9]"}, PoolPairs("index_in_window", int64_t{0}), "f32[1,3,8] i64[1,3,8]"},
      {"MaxPool", {"f32[1,3,9]"}, PoolPairs("index_in_window", int64_t{1}), "f32[1,3,8] u8[1,3,8]"},
      {"MaxPoolGrad", {"f32[1,3,8]", "u8[1,3,8]"}, PoolPairs("input_shape", Shape{1, 3, 9}), "f32[1,3,9]"},
      {"MaxPoolGrad", {"f32[1,3,7]", "u8[1,3,7]"}, PoolPairs("input_shape", Shape{1, 3, 9}), "error: input 0"},
      {"MaxPoolGrad", {"f32[1,3,8]", "i64[1,3,8]"}, {{"input_shape", Shape{1, 3, 9}}}, "f32[1,3,9]"},
      {"And", {"i64[2]", "i64[2]"}, none, "error: input 0 should be bool"},
      {"Where", {"bool[2,1]", "i32[3]", "i32[]"}, none, "i32[2,3]"},
      {"Exp", {"i64[2]"}, none, "error: input 0 should be of a float type"},
      {"Cast", {"f32[2]"}, {{"to", std::string("bf16")}}, "bf16[2]"},
      {"Cast", {"f32[2]"}, {{"to", std::string("f8")}}, "error: unknown element type 'f8'"},
      {"Gelu", {"f32[2]"}, {{"approximate", std::string("sin")}}, "error: unknown approximation 'sin'"},
      {"ReduceSum", {"f32[2,3,4]"}, {{"axes", Ints{0, 2}}, {"keepdims", int64_t{0}}}, "f32[3]"},
      {"ReduceSum", {"f32[2,3,4]"}, none, "f32[1,1,1]"},
      {"ReduceSum", {"f32[2,3]"}, {{"axes", Ints{-1}}}, "error: axis -1 is outside"},
      {"ReduceSum", {"f32[2,3]"}, {{"axes", Ints{1, 1}}}, "error: axis 1 is given twice"},
      {"ReduceMax", {"i64[0,3]"}, {{"axes", Ints{0}}}, "error: reduces nothing"},
      {"ArgMax", {"f32[2,3]"}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}}, "i64[2]"},
      {"ArgMax", {"f32[2,0]"}, {{"axis", int64_t{1}}}, "error: axis 1 of f32[2,0] is empty"},
      {"MatMul", {"f32[5,1,2,3]", "f32[4,3,6]"}, none, "f32[5,4,2,6]"},
      {"MatMul", {"f32[3,2]", "f32[6,3]"}, {{"trans_a", int64_t{1}}, {"trans_b", int64_t{1}}}, "f32[2,6]"},
      {"MatMul", {"f32[2,3]", "f32[2,3]"}, none, "error: inner extents"},
      {"MatMul", {"f32[3]", "f32[3,2]"}, none, "error: input 0 should be of rank 2 or more"},
      {"Reshape", {"f32[2,3]"}, {{"shape", Ints{3, 2}}}, "f32[3,2]"},
      {"Reshape", {"f32[2,3]"}, {{"shape", Ints{-1}}}, "error: attribute 'shape'"},
      {"Expand", {"f32[3,1]"}, {{"shape", Ints{2, 3, 4}}}, "f32[2,3,4]"},
      {"Expand", {"f32[3]"}, {{"shape", Ints{1}}}, "error: cannot broadcast"},
      {"Transpose", {"f32[2,3]"}, {{"perm", Ints{0, 0}}}, "error: perm [0,0] is no permutation"},
      {"Concat", {"f32[2,3]", "f32[2,1]"}, {{"axis", int64_t{1}}}, "f32[2,4]"},
      {"Concat", {"f32[2,3]", "f32[1,3]"}, {{"axis", int64_t{1}}}, "error: cannot concatenate"},
      {"Split",
       {"f32[5]"},
       {{"axis", int64_t{0}}, {"sizes", Ints{2, 3}}, {"num_outputs", int64_t{2}}},
       "f32[2] f32[3]"},
      {"Split",
       {"f32[5]"},
       {{"axis", int64_t{0}}, {"sizes", Ints{2}}, {"num_outputs", int64_t{1}}},
       "error: sizes [2] leave 3"},
      {"Slice", {"f32[5]"}, {{"starts", Ints{4}}, {"sizes", Ints{3}}, {"steps", Ints{-2}}}, "f32[3]"},
      {"Slice", {"f32[5]"}, {{"starts", Ints{3}}, {"sizes", Ints{3}}, {"steps", Ints{-2}}}, "error: slice from 3"},
      {"Pad", {"f32[2,3]"}, {{"pads", Ints{1, 0, 0, 2}}}, "f32[3,5]"},
      {"Pad", {"f32[2]"}, {{"pads", Ints{1, -1}}}, "error: pads [1,-1] have a negative one"},
      {"Gather", {"f32[5,6]", "i64[2,3]"}, {{"axis", int64_t{1}}}, "f32[5,2,3]"},
      {"Gather", {"f32[5,6]", "i32[2]"}, none, "error: input 1 should be i64"},
      {"Gather", {"f32[0,6]", "i64[2]"}, none, "error: axis 0 of [0,6] is empty"},
      {"GatherGrad", {"f32[2,6]", "i64[2]"}, {{"input_shape", Ints{5, 6}}}, "f32[5,6]"},
      {"GatherGrad", {"f32[3,6]", "i64[2]"}, {{"input_shape", Ints{5, 6}}}, "error: input 0 should be of shape [2,6]"},
      {"GatherElements", {"f32[5,6]", "i64[3,9]"}, {{"axis", int64_t{1}}}, "f32[3,9]"},
      {"GatherElements",
       {"f32[5,6]", "i64[6,2]"},
       {{"axis", int64_t{1}}},
       "error: an index of shape [6,2] does not fit"},
  };
  for (const TypeCase& c : cases) {
    const std::string got = ListTypes(c.op, c.inputs, c.attrs);
    EXPECT_EQ(got.substr(0, std::max(c.expected.size(), got.rfind("error", 0) == 0 ? 0 : got.size())), c.expected)
        << c.op;
  }
}

// Random types and attributes, with extremes among them. What types must also evaluate, to the types promised.
class Fuzzer {
 public:
  int64_t Number() {
    constexpr int64_t kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();
    constexpr int64_t kExtremes[] = {kMin, kMin + 1, -(int64_t{1} << 40), int64_t{1} << 40, int64_t{1} << 62, kMax};
    return Chance(12) ? kExtremes[random_() % 6] : static_cast<int64_t>(random_() % 8) - 2;
  }
  Shape SomeShape() {
    Shape shape(random_() % 4);
    for (int64_t& d : shape) d = Chance(40) ? int64_t{1} << 39 : static_cast<int64_t>(random_() % 4);
    return CheckShape(shape).ok() ? shape : SomeShape();
  }
  // Mostly one type for all inputs, as most operators want.
  std::vector<Type> Inputs(const OpRow& row) {
    std::vector<Type> types(row.inputs.min +
                            random_() % (std::min(row.inputs.max, row.inputs.min + 2) - row.inputs.min + 1));
    const Type common{SomeDType(), SomeShape()};
    for (Type& type : types) {
      type.dtype = Chance(4) ? SomeDType() : common.dtype;
      type.shape = Chance(3) ? SomeShape() : common.shape;
    }
    if (types.size() == 2 && Chance(3)) types[1].dtype = DType::kInt64;
    return types;
  }
  Attrs SomeAttrs(const OpRow& row, int rank) {
    Attrs attrs;
    for (const AttrSpec& spec : row.attrs) {
      if (std::holds_alternative<int64_t>(spec.value)) attrs.Set(std::string(spec.name), Number());
      if (std::holds_alternative<double>(spec.value)) attrs.Set(std::string(spec.name), static_cast<double>(Number()));
      if (std::holds_alternative<std::string>(spec.value))
        attrs.Set(std::string(spec.name), std::string(Chance(2) ? "f32" : "tanh"));
      if (std::holds_alternative<HostTensor>(spec.value))
        attrs.Set(std::string(spec.name), HostTensor({DType::kInt8, {2}}));
      if (!std::holds_alternative<Ints>(spec.value)) continue;
      Ints ints(Chance(4) ? random_() % 5 : spec.name == "pads" ? 2 * rank : rank);
      for (int64_t& i : ints) i = Number();
      attrs.Set(std::string(spec.name), ints);
    }
    return attrs;
  }
  HostTensor Tensor(const Type& type) {
    HostTensor t(type);
    for (int64_t i = 0; i < t.size(); ++i) t.SetInt(i, Number());
    return t;
  }

 private:
  bool Chance(int one_in) { return random_() % one_in == 0; }
  DType SomeDType() { return Chance(2) ? DType::kFloat32 : static_cast<DType>(random_() % 13); }
  std::mt19937 random_{1};
};

TEST(Types, RulesAreTotal) {
  Fuzzer fuzz;
  int evaluated = 0;
  for (int round = 0; round < 4000; ++round) {
    for (auto family : {ElementwiseOps, ReduceOps, MatmulOps, ShapeOps, IndexOps}) {
      for (const OpRow& row : family()) {
        const std::vector<Type> types = fuzz.Inputs(row);
        Attrs attrs = fuzz.SomeAttrs(row, types.empty() ? 0 : types[0].rank());
        std::vector<const Type*> pointers;
        int64_t size = 0;
        for (const Type& type : types) {
          pointers.push_back(&type);
          size = std::max(size, type.elements());
        }
        const auto outputs = InferTypes(row.name, pointers, attrs);
        if (!outputs.ok()) continue;
        for (const Type& type : *outputs) size = std::max(size, type.elements());
        if (size > 1000) continue;
        ++evaluated;
        std::vector<HostTensor> tensors;
        std::vector<const HostTensor*> inputs;
        for (const Type& type : types) tensors.push_back(fuzz.Tensor(type));
        for (const HostTensor& tensor : tensors) inputs.push_back(&tensor);
        const std::vector<HostTensor> results = row.evaluate({attrs, inputs, *outputs});
        ASSERT_EQ(results.size(), outputs->size()) << row.name;
        for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i].type(), (*outputs)[i]) << row.name;
      }
    }
  }
  EXPECT_GT(evaluated, 50000);
}

}  // namespace
}  // namespace onnxtrain
