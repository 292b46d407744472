// Tests a fixed batch in target shapes of operators other than Reshape.
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

}  // namespace
}  // namespace onnxtrain
