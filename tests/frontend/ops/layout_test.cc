// Layouts: which operands of a node share one, what inference makes of it, and nodes in the order of memory.
#include "frontend/ops/layout.h"

#include <gtest/gtest.h>

#include "frontend/graph/text_form.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;

Type Rows(Shape shape) { return {DType::kFloat32, std::move(shape)}; }
Type Nhwc(Shape shape) { return {DType::kFloat32, std::move(shape), Layout::kChannelsLast}; }

// The type of the first result, or the error, of an operator over inputs of these types.
std::string Infer(std::string_view op, const std::vector<Type>& types, Attrs attrs = {}) {
  std::vector<const Type*> inputs;
  for (const Type& type : types) inputs.push_back(&type);
  const auto outputs = InferTypes(op, inputs, attrs);
  return outputs.ok() ? ToString(outputs->front()) : std::string(outputs.status().message());
}

Attrs Windows() {
  return {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}, {"pads", Ints(4, 0)}, {"dilations", Ints{1, 1}}};
}

Attrs ConvAttrs() {
  Attrs attrs = Windows();
  attrs.Erase("kernel_shape");
  return attrs;
}

TEST(Layouts, OutputsGetTheLayoutOfInputs) {
  const Type x = Nhwc({2, 3, 4, 6}), c = Rows({3});
  EXPECT_EQ(Infer("Relu", {x}), "f32[2,3,4,6]:nhwc");
  EXPECT_EQ(Infer("Add", {x, Rows({})}), "f32[2,3,4,6]:nhwc");
  EXPECT_EQ(Infer("Add", {x, Nhwc({1, 3, 1, 1})}), "f32[2,3,4,6]:nhwc");
  EXPECT_EQ(Infer("Concat", {x, x}, {{"axis", int64_t{1}}}), "f32[2,6,4,6]:nhwc");
  EXPECT_EQ(Infer("Expand", {Nhwc({2, 3, 1, 1})}, {{"shape", Ints{2, 3, 4, 6}}}), "f32[2,3,4,6]:nhwc");
  EXPECT_EQ(Infer("BatchNorm", {x, c, c}), "f32[2,3,4,6]:nhwc");
  EXPECT_EQ(Infer("MaxPool", {x}, Windows()), "f32[2,3,2,3]:nhwc");
  EXPECT_EQ(Infer("ReduceSum", {x}, {{"axes", Ints{2, 3}}}), "f32[2,3,1,1]:nhwc");
  EXPECT_EQ(Infer("ReduceSum", {x}, {{"axes", Ints{2, 3}}, {"keepdims", int64_t{0}}}), "f32[2,3]");
}

TEST(Layouts, PackedWeightsKeepTheirShape) {
  const Type x = Nhwc({2, 3, 4, 6}), w = {DType::kFloat32, {8, 3, 2, 2}, Layout::kPacked, 1024};
  EXPECT_EQ(w.bytes(), 1024);
  EXPECT_EQ(Infer("Conv", {x, w}, ConvAttrs()), "f32[2,8,2,3]:nhwc");
  EXPECT_EQ(Infer("Neg", {w}), "expected a row-major tensor, got f32[8,3,2,2]:packed(1024)");
}

TEST(Layouts, WhatCannotBeComputedIsRefused) {
  const Type x = Nhwc({2, 3, 4, 6});
  EXPECT_EQ(Infer("Add", {x, Rows({2, 3, 4, 6})}), "expected one layout, got f32[2,3,4,6]:nhwc and f32[2,3,4,6]");
  EXPECT_EQ(Infer("Add", {x, Rows({3, 1, 1})}), "cannot compute over f32[2,3,4,6]:nhwc");
  EXPECT_EQ(Infer("ReduceSum", {x}, {{"axes", Ints{0}}, {"keepdims", int64_t{0}}}),
            "cannot compute over f32[2,3,4,6]:nhwc");
  EXPECT_EQ(Infer("Reshape", {x}, {{"shape", Ints{144}}}), "expected a row-major tensor, got f32[2,3,4,6]:nhwc");
  EXPECT_EQ(Infer("MatMul", {x, Rows({6, 2})}), "expected a row-major tensor, got f32[2,3,4,6]:nhwc");
}

TEST(Layouts, PhysicalNodesHavePermutedAttributes) {
  const auto graph = Parse(R"(graph(feed %x: f32[2,3,4,6]:nhwc) {
  %pad: f32[2,4,6,9]:nhwc = Pad(%x) {pads=[0, 1, 2, 3, 0, 0, 0, 0], value=0.5}
  %slice: f32[2,3,4,2]:nhwc = Slice(%x) {sizes=[2, 3, 4, 2], starts=[0, 0, 0, 1], steps=[1, 1, 1, 2]}
  %split: f32[2,1,4,6]:nhwc, %rest: f32[2,2,4,6]:nhwc = Split(%x) {axis=1, num_outputs=2, sizes=[1, 2]}
  %sum: f32[1,3,1,6]:nhwc = ReduceSum(%x) {axes=[0, 2], keepdims=1}
  return %pad, %slice, %split, %rest, %sum
}
)");
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_TRUE(Verify(*graph).ok()) << Verify(*graph);
  const auto physical = [&](size_t n) { return ToPhysical(*graph, graph->nodes()[n]); };
  EXPECT_EQ(physical(0).inputs[0], Rows({2, 4, 6, 3}));
  EXPECT_EQ(physical(0).outputs[0], Rows({2, 6, 9, 4}));
  EXPECT_EQ(physical(0).attrs.Ints("pads"), (Ints{0, 2, 3, 1, 0, 0, 0, 0}));
  EXPECT_EQ(physical(1).attrs.Ints("sizes"), (Ints{2, 4, 2, 3}));
  EXPECT_EQ(physical(1).attrs.Ints("steps"), (Ints{1, 1, 2, 1}));
  EXPECT_EQ(physical(2).attrs.Int("axis"), 3);
  EXPECT_EQ(physical(2).attrs.Ints("sizes"), (Ints{1, 2}));
  EXPECT_EQ(physical(3).attrs.Ints("axes"), (Ints{0, 1}));
}

// The kinds of attributes are those of their roles.
TEST(Layouts, AxisRolesFitTheirAttributes) {
  for (const OpRow* row : AllOps()) {
    for (const AttrSpec& spec : row->attrs) {
      if (spec.axes == AxisRole::kNone) continue;
      EXPECT_TRUE(row->layout.any_order) << row->name;
      EXPECT_EQ(spec.axes == AxisRole::kAxis, std::holds_alternative<int64_t>(spec.value)) << row->name << spec.name;
      EXPECT_EQ(spec.axes != AxisRole::kAxis, std::holds_alternative<Ints>(spec.value)) << row->name << spec.name;
    }
  }
}

}  // namespace
}  // namespace onnxtrain
