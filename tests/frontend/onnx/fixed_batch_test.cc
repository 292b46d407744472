// Tests a fixed batch in target shapes of operators.
#include <gtest/gtest.h>

#include "model_builder.h"

namespace onnxtrain {
namespace {

Shape ImportedOutputShape(const onnx::ModelProto& model, int64_t batch) {
  auto imported = ImportModel(model, {.batch = batch});
  EXPECT_TRUE(imported.ok()) << imported.status();
  return imported.ok() ? imported->graph.type(imported->graph.FindOutput("y")->value).shape : Shape{-1};
}

TEST(FrozenTargets, SizesOfResizeFollowTheBatch) {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "x", {1, 2, 4});
  FillInts(AddInitializer(&model, "sizes", {3}, 7), {1, 2, 8});
  AddNode(&model, "Resize", {"x", "", "", "sizes"}, {"y"}, "resize");
  AddOutput(&model, "y");
  EXPECT_EQ(ImportedOutputShape(model, 3), (Shape{3, 2, 8}));
}

TEST(FrozenTargets, SizesOfNamedAxesStay) {
  onnx::ModelProto model = NewModel(18);
  AddInput(&model, "x", {1, 2, 4});
  FillInts(AddInitializer(&model, "sizes", {1}, 7), {1});
  SetInts(AddNode(&model, "Resize", {"x", "", "", "sizes"}, {"y"}, "resize"), "axes", {2});
  AddOutput(&model, "y");
  EXPECT_EQ(ImportedOutputShape(model, 3), (Shape{3, 2, 1}));
}

TEST(FrozenTargets, ShapeOfCenterCropPadFollowsTheBatch) {
  onnx::ModelProto model = NewModel(18);
  AddInput(&model, "x", {1, 6});
  FillInts(AddInitializer(&model, "shape", {2}, 7), {1, 4});
  AddNode(&model, "CenterCropPad", {"x", "shape"}, {"y"}, "crop");
  AddOutput(&model, "y");
  EXPECT_EQ(ImportedOutputShape(model, 5), (Shape{5, 4}));
}

// A constant times a scalar of the data has no batch: 1 in front of it stays.
TEST(FrozenTargets, ShapesOfScaledConstantsStay) {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "x", {1, 4});
  FillFloats(AddInitializer(&model, "c", {4}), {1, 2, 3, 4});
  FillInts(AddInitializer(&model, "row", {2}, 7), {1, 4});
  SetInt(AddNode(&model, "ReduceMax", {"x"}, {"largest"}, "max"), "keepdims", 0);
  AddNode(&model, "Mul", {"c", "largest"}, {"scaled"}, "mul");
  AddNode(&model, "Reshape", {"scaled", "row"}, {"y"}, "reshape");
  AddOutput(&model, "y");
  EXPECT_EQ(ImportedOutputShape(model, 4), (Shape{1, 4}));
}

// The shape of a value [batch,4,6] that `perm` transposes and a constant target reshapes.
Shape ReshapedShape(const std::vector<int64_t>& perm, const std::vector<int64_t>& target, int64_t batch) {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "x", {1, 4, 6});
  FillInts(AddInitializer(&model, "target", {static_cast<int64_t>(target.size())}, 7), target);
  SetInts(AddNode(&model, "Transpose", {"x"}, {"t"}, "transpose"), "perm", perm);
  AddNode(&model, "Reshape", {"t", "target"}, {"y"}, "reshape");
  AddOutput(&model, "y");
  return ImportedOutputShape(model, batch);
}

TEST(FrozenTargets, ReshapeFollowsTheBatchOnAnyAxis) {
  EXPECT_EQ(ReshapedShape({1, 0, 2}, {4, 1, 2, 3}, 5), (Shape{4, 5, 2, 3}));  // heads of a time-major value
  EXPECT_EQ(ReshapedShape({0, 1, 2}, {4, 6}, 5), (Shape{20, 6}));             // merged with the axis behind it
  EXPECT_EQ(ReshapedShape({1, 0, 2}, {4, 2, 3}, 5), (Shape{4, 10, 3}));       // batch and heads
  EXPECT_EQ(ReshapedShape({0, 1, 2}, {2, 2, 6}, 5), (Shape{10, 2, 6}));       // windows
  EXPECT_EQ(ReshapedShape({1, 0, 2}, {4, 1, -1, 3}, 5), (Shape{4, 5, 2, 3}));
  EXPECT_EQ(ReshapedShape({0, 1, 2}, {-1, 6}, 5), (Shape{20, 6}));
}

}  // namespace
}  // namespace onnxtrain
