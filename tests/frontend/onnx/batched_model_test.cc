// Compares the graphs of BatchedModel::At with imports at the same batch.
#include "frontend/onnx/batched_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model_builder.h"
#include "tests/frontend/onnx/describe_import.h"

namespace onnxtrain {
namespace {

// Compares with imports at these sizes, in this order; returns how many the batched model has made.
int64_t CountImports(const onnx::ModelProto& proto, const std::vector<int64_t>& batches, ImportOptions options = {}) {
  const auto model = LoadModel(proto);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return -1;
  BatchedModel batched(*model, options);
  for (const int64_t batch : batches) {
    options.batch = batch;
    const auto expected = Import(**model, options), actual = batched.At(batch);
    EXPECT_EQ(Message(actual.status()), Message(expected.status()));
    if (!actual.ok() || !expected.ok()) continue;
    EXPECT_EQ(DescribeImport(*actual), DescribeImport(*expected)) << "batch " << batch;
  }
  return batched.imports();
}

const std::vector<int64_t> kBatches = {12, 4, 2, 3, 5, 7, 64};

TEST(BatchedModel, TwoImportsServeAllBatches) { EXPECT_EQ(CountImports(LinearModel(), kBatches), 2); }

TEST(BatchedModel, SizesFarFromOthersTakeAnImportWhereTwoAreClose) {
  EXPECT_EQ(CountImports(LinearModel(), {4, 5, 6, 13, 7, 100}), 4);
}

TEST(BatchedModel, OneSampleIsImportedForItself) {
  onnx::ModelProto model = NewModel();  // squeezes every axis of one element
  AddInput(&model, "x", {-1, 1, 3});
  AddNode(&model, "Squeeze", {"x"}, {"y"}, "squeeze");
  AddOutput(&model, "y");
  EXPECT_EQ(CountImports(model, {12, 4, 1, 2, 1}), 4);
}

TEST(BatchedModel, ReplacesTheBatchOfTheFile) {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "x", {6, 2, 2});
  FillInts(AddInitializer(&model, "target", {2}, 7), {6, 4});
  AddNode(&model, "Reshape", {"x", "target"}, {"y"}, "reshape");
  AddOutput(&model, "y");
  EXPECT_EQ(CountImports(model, kBatches), 2);
  EXPECT_EQ(CountImports(model, {6, 12, 6, 4, 5, 6}), 5) << "the size of the file is imported for itself";
}

onnx::ModelProto NormModel() {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "x", {-1, 3, 2, 2});
  for (const char* name : {"scale", "bias", "mean", "var"}) FillFloats(AddInitializer(&model, name, {3}), {1, 2, 3});
  AddNode(&model, "BatchNormalization", {"x", "scale", "bias", "mean", "var"}, {"y"}, "norm");
  AddOutput(&model, "y");
  return model;
}

// The factor n / (n − 1) of the running variance is a constant.
TEST(BatchedModel, BatchNormalizationCountsTheValuesOfTheBatch) {
  EXPECT_EQ(CountImports(NormModel(), kBatches, {.training = true}), 2);
}

TEST(BatchedModel, KnowsWhetherTheModeMatters) {
  for (const auto& [proto, same] : {std::pair(LinearModel(), true), {NormModel(), false}}) {
    BatchedModel batched(LoadModel(proto).value(), {.training = true});
    EXPECT_FALSE(batched.same_in_both_modes());
    ASSERT_TRUE(batched.At(3).ok());
    EXPECT_EQ(batched.same_in_both_modes(), same);
  }
}

// y = f(shape of x), whose first element is `batch`.
onnx::ModelProto ShapeModel(const std::vector<int64_t>& dims = {-1, 4}) {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "x", dims);
  FillInts(AddInitializer(&model, "first", {}, 7), {0});
  AddNode(&model, "Shape", {"x"}, {"shape"}, "shape");
  AddNode(&model, "Gather", {"shape", "first"}, {"batch"}, "gather");
  AddOutput(&model, "y");
  return model;
}

onnx::ModelProto RangeModel() {
  onnx::ModelProto model = ShapeModel();
  FillInts(AddInitializer(&model, "one", {}, 7), {1});
  FillInts(AddInitializer(&model, "last", {1}, 7), {1});
  AddNode(&model, "Range", {"first", "batch", "one"}, {"range"}, "range");
  SetInt(AddNode(&model, "Cast", {"range"}, {"float"}, "cast"), "to", 1);
  AddNode(&model, "Unsqueeze", {"float", "last"}, {"column"}, "unsqueeze");
  AddNode(&model, "Add", {"x", "column"}, {"y"}, "add");
  return model;
}

// Positions are known for sizes up to the largest that was imported.
TEST(BatchedModel, RangesOfTheBatch) {
  EXPECT_EQ(CountImports(RangeModel(), {12, 4, 5, 7, 11}), 2);
  EXPECT_EQ(CountImports(RangeModel(), {12, 4, 64, 40, 2, 3}), 4);
}

// Adds rows of zeros, as of the first state of a recurrent model.
onnx::ModelProto ZerosModel(int64_t width) {
  onnx::ModelProto model = ShapeModel({-1, 1});
  FillInts(AddInitializer(&model, "axes", {1}, 7), {0});
  FillInts(AddInitializer(&model, "width", {1}, 7), {width});
  AddNode(&model, "Unsqueeze", {"batch", "axes"}, {"rows"}, "unsqueeze");
  SetInt(AddNode(&model, "Concat", {"rows", "width"}, {"target"}, "concat"), "axis", 0);
  AddNode(&model, "ConstantOfShape", {"target"}, {"zeros"}, "zeros");
  AddNode(&model, "Add", {"zeros", "x"}, {"y"}, "add");
  return model;
}

TEST(BatchedModel, RepeatedConstants) { EXPECT_EQ(CountImports(ZerosModel(4), kBatches), 2); }

// 12 samples have 48 MiB of zeros, which stay a node, 3 samples have a constant.
TEST(BatchedModel, SmallerBatchesMayHaveMoreConstants) {
  EXPECT_EQ(CountImports(ZerosModel(int64_t{1} << 20), {12, 20, 13, 3, 2}), 4);
}

// Half of a batch is no line: 3 and 2 samples have the same one.
TEST(BatchedModel, HalvesOfTheBatch) {
  onnx::ModelProto model = ShapeModel();
  FillInts(AddInitializer(&model, "two", {}, 7), {2});
  FillInts(AddInitializer(&model, "axes", {1}, 7), {0});
  AddNode(&model, "Div", {"batch", "two"}, {"half"}, "div");
  AddNode(&model, "Unsqueeze", {"half", "axes"}, {"end"}, "unsqueeze");
  AddNode(&model, "Slice", {"x", "axes", "end", "axes"}, {"y"}, "slice");
  CountImports(model, {3, 2, 4, 12, 13, 6, 7, 64});
  CountImports(model, {13, 4, 2, 3, 5, 7, 12, 64});
  CountImports(model, {64, 37, 2, 3, 5, 7, 12, 13});
}

// Scores of samples against each other, as of CLIP.
TEST(BatchedModel, SquaresOfTheBatch) {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "x", {-1, 4});
  FillInts(AddInitializer(&model, "flat", {1}, 7), {-1});
  SetInts(AddNode(&model, "Transpose", {"x"}, {"t"}, "transpose"), "perm", {1, 0});
  AddNode(&model, "MatMul", {"x", "t"}, {"scores"}, "matmul");
  AddOutput(&model, "scores");
  EXPECT_EQ(CountImports(model, kBatches), 2);
  AddNode(&model, "Reshape", {"scores", "flat"}, {"y"}, "reshape");
  AddOutput(&model, "y");
  EXPECT_EQ(CountImports(model, kBatches), static_cast<int64_t>(kBatches.size()));
}

TEST(BatchedModel, FailsAsAnImportFails) {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "x", {-1, 4});
  FillFloats(AddInitializer(&model, "rows", {3, 4}), std::vector<float>(12, 1));
  AddNode(&model, "Add", {"x", "rows"}, {"y"}, "add");
  AddOutput(&model, "y");
  CountImports(model, {12, 3, 4, 1, 3, 2});
}

}  // namespace
}  // namespace onnxtrain
