// Resizing, unpooling and pooling as they come from files: extents, coordinates, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "frontend/base/strings.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/row.h"
#include "frontend/passes/differentiate.h"
#include "tests/frontend/ops/import/import_fixture.h"

namespace onnxtrain {
namespace {

constexpr DType kF32 = DType::kFloat32;
using Ints = std::vector<int64_t>;
using Numbers = std::vector<double>;
using ::testing::ElementsAre;

HostTensor Floats(const Numbers& values) {
  return HostTensor::FromDoubles({kF32, {static_cast<int64_t>(values.size())}}, values);
}
HostTensor Tensor(Shape shape, const Numbers& values) {
  return HostTensor::FromDoubles({kF32, std::move(shape)}, values);
}

// 1, 2, 3, …
HostTensor Arange(Shape shape) {
  Numbers values(NumElements(shape));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i + 1);
  return Tensor(std::move(shape), values);
}

// The values of output 0 on these inputs "x0", "x1", ….
HostTensor EvaluateNode(SingleNodeImporter& n, const std::vector<HostTensor>& inputs) {
  const auto outputs = n.Import();
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  if (!outputs.ok()) return HostTensor();
  n.graph().AddOutput("y", (*outputs)[0].id());
  std::map<std::string, HostTensor> feeds;
  for (size_t i = 0; i < inputs.size(); ++i) feeds[StrCat("x", i)] = inputs[i];
  const auto results = Interpret(n.graph(), feeds);
  EXPECT_TRUE(results.ok()) << results.status();
  return results.ok() ? (*results)[0] : HostTensor();
}

TEST(ImportResize, ScalesMultiplyInFloat32) {
  SingleNodeImporter n("Resize", 13);
  n.Input({kF32, {1, 1, 10}}).Absent().Constant(Floats({1, 1, 0.7f}));
  EXPECT_EQ(EvaluateNode(n, {Arange({1, 1, 10})}).shape(), (Shape{1, 1, 7}));
}

// Half of 5 elements are 2.5: two are kept, at 1 and 3, the middle of what each stands for.
TEST(ImportResize, SymmetricHalfPixelsAreExact) {
  SingleNodeImporter n("Resize", 19);
  n.Input({kF32, {1, 1, 5}}).Absent().Constant(Floats({1, 1, 0.5f}));
  n.Attr("coordinate_transformation_mode", std::string("half_pixel_symmetric"));
  n.Attr("nearest_mode", std::string("floor"));
  EXPECT_THAT(EvaluateNode(n, {Arange({1, 1, 5})}).ToDoubles(), ElementsAre(2, 4));
}

TEST(ImportResize, ARoundedScaleHitsTheElementsThatItMeans) {
  SingleNodeImporter n("Resize", 13);
  n.Input({kF32, {1, 1, 9}}).Absent().Constant(Floats({1, 1, 1.0f / 3}));
  n.Attr("coordinate_transformation_mode", std::string("asymmetric")).Attr("nearest_mode", std::string("floor"));
  EXPECT_THAT(EvaluateNode(n, {Arange({1, 1, 9})}).ToDoubles(), ElementsAre(1, 4, 7));
}

// 8/1.6 is 5, whatever float32 makes of 1.6.
TEST(ImportResize, AScaleInFloat32IsMeantInDecimals) {
  SingleNodeImporter n("Resize", 13);
  n.Input({kF32, {1, 1, 9}}).Absent().Constant(Floats({1, 1, 1.6f}));
  n.Attr("coordinate_transformation_mode", std::string("asymmetric")).Attr("nearest_mode", std::string("floor"));
  EXPECT_THAT(EvaluateNode(n, {Arange({1, 1, 9})}).ToDoubles(), ElementsAre(1, 1, 2, 2, 3, 4, 4, 5, 6, 6, 7, 7, 8, 9));
}

// PyTorch and runtimes align the corners of what there is; ONNX's test data those of the unrounded extent.
TEST(ImportResize, AlignedCorners) {
  for (bool conformance : {false, true}) {
    SingleNodeImporter n("Resize", 13);
    n.conformance = conformance;
    n.Input({kF32, {1, 1, 4}}).Absent().Constant(Floats({1, 1, 0.6f}));
    n.Attr("mode", std::string("linear")).Attr("coordinate_transformation_mode", std::string("align_corners"));
    const std::vector<double> y = EvaluateNode(n, {Arange({1, 1, 4})}).ToDoubles();
    ASSERT_EQ(y.size(), 2u);
    EXPECT_EQ(y[0], 1);
    EXPECT_NEAR(y[1], conformance ? 3.142857 : 4, 1e-5);
  }
}

// Opset 10: the element before where an axis grows, the one behind where it shrinks.
TEST(ImportResize, BeforeOpset11) {
  SingleNodeImporter n("Resize", 10);
  n.Input({kF32, {1, 1, 2, 4}}).Constant(Floats({1, 1, 2, 0.6f}));
  EXPECT_THAT(EvaluateNode(n, {Arange({1, 1, 2, 4})}).ToDoubles(), ElementsAre(1, 3, 1, 3, 5, 7, 5, 7));
}

TEST(ImportResize, UpsampleOfOpset7) {
  SingleNodeImporter n("Upsample", 7);
  n.Input({kF32, {1, 1, 1, 2}}).Attr("scales", Numbers{1, 1, 2, 3});
  EXPECT_THAT(EvaluateNode(n, {Arange({1, 1, 1, 2})}).ToDoubles(), ElementsAre(1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2));
}

TEST(ImportResize, IntegersAreGathered) {
  SingleNodeImporter n("Resize", 13);
  n.Input({DType::kInt32, {1, 2}}).Absent().Constant(Floats({1, 2}));
  EXPECT_THAT(EvaluateNode(n, {HostTensor::FromInts({DType::kInt32, {1, 2}}, Ints{7, 9})}).ToDoubles(),
              ElementsAre(7, 7, 9, 9));
}

TEST(ImportResize, WhatChangesNothingIsNothing) {
  SingleNodeImporter n("Resize", 13);
  n.Input({kF32, {1, 2, 3}}).Absent().Constant(Floats({1, 1, 1}));
  ASSERT_TRUE(n.Import().ok());
  for (const Node& node : n.graph().nodes()) EXPECT_EQ(node.op, "Constant");
}

TEST(ImportResize, ExtrapolatesOutsideOfTheRegion) {
  SingleNodeImporter n("Resize", 13);
  n.Input({kF32, {1, 3}}).Constant(Floats({0, -0.5, 1, 1.5})).Constant(Floats({1, 5.0f / 3}));
  n.Attr("mode", std::string("linear")).Attr("coordinate_transformation_mode", std::string("tf_crop_and_resize"));
  n.Attr("extrapolation_value", -9.0);
  EXPECT_THAT(EvaluateNode(n, {Arange({1, 3})}).ToDoubles(), ElementsAre(-9, 1, 2, 3, -9));
}

TEST(ImportResize, RefusesNonsense) {
  const double nan = std::nan("");
  for (const Numbers& scales : {Numbers{1, 1}, {1, 1, 0}, {1, 1, -1}, {1, 1, nan}, {1, 1, 1e30}, {}}) {
    SingleNodeImporter n("Resize", 13);
    n.Input({kF32, {1, 1, 4}}).Absent().Constant(Floats(scales));
    EXPECT_FALSE(n.Import().ok());
  }
  for (const char* name : {"mode", "coordinate_transformation_mode", "nearest_mode"}) {
    SingleNodeImporter n("Resize", 13);
    n.Input({kF32, {1, 1, 4}}).Absent().Constant(Floats({1, 1, 2})).Attr(name, std::string("nonsense"));
    EXPECT_FALSE(n.Import().ok()) << name;
  }
  SingleNodeImporter no_region("Resize", 13), fed("Resize", 13);
  no_region.Input({kF32, {4}})
      .Absent()
      .Constant(Floats({2}))
      .Attr("coordinate_transformation_mode", std::string("tf_crop_and_resize"));
  EXPECT_FALSE(no_region.Import().ok());
  fed.Input({kF32, {4}}).Absent().Input({kF32, {1}});
  EXPECT_FALSE(fed.Import().ok());
}

// Two windows that share their maximum write it once.
TEST(ImportMaxUnpool, OverlappingWindows) {
  SingleNodeImporter n("MaxUnpool", 11);
  n.Input({kF32, {1, 1, 2}}).Input({DType::kInt64, {1, 1, 2}});
  n.Attr("kernel_shape", Ints{3}).Attr("strides", Ints{1});
  EXPECT_THAT(EvaluateNode(n, {Tensor({1, 1, 2}, {5, 5}), HostTensor::FromInts({DType::kInt64, {1, 1, 2}}, Ints{2, 2})})
                  .ToDoubles(),
              ElementsAre(0, 0, 5, 0));
}

TEST(ImportMaxUnpool, IndicesCountWithinTheOutput) {
  SingleNodeImporter n("MaxUnpool", 11);
  n.Input({kF32, {1, 2, 1}}).Input({DType::kInt64, {1, 2, 1}}).Constant(HostTensor::FromInts(Ints{1, 2, 3}));
  n.Attr("kernel_shape", Ints{2}).Attr("strides", Ints{2});
  EXPECT_THAT(EvaluateNode(n, {Tensor({1, 2, 1}, {5, 6}), HostTensor::FromInts({DType::kInt64, {1, 2, 1}}, Ints{2, 4})})
                  .ToDoubles(),
              ElementsAre(0, 0, 5, 0, 6, 0));
}

// A window of zeros has a norm of 0 and hands no gradient on, and no NaN.
TEST(ImportLpPool, ZerosHaveAGradient) {
  for (int64_t p : {1, 2, 3}) {
    SingleNodeImporter n("GlobalLpPool", 13);
    n.Input({kF32, {1, 2, 2}}).Attr("p", p);
    const auto y = n.Import();
    ASSERT_TRUE(y.ok()) << y.status();
    const Val loss = ReduceSum((*y)[0], {}, false);
    const ValueId x = n.graph().FindInput("x0")->value;
    const ValueId wrt[] = {x};
    const auto gradients = Differentiate(&n.graph(), loss.id(), wrt);
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    n.graph().AddOutput("dx", gradients->at(x));
    const auto results = Interpret(n.graph(), {{"x0", Tensor({1, 2, 2}, {0, 0, 0, 2})}});
    ASSERT_TRUE(results.ok()) << results.status();
    const std::vector<double> dx = (*results)[0].ToDoubles();
    EXPECT_THAT(Numbers(dx.begin(), dx.begin() + 3), ElementsAre(0, 0, 0)) << p;
    EXPECT_NEAR(dx[3], 1, 1e-6) << p;
  }
}

// Windows that hold nothing but pads are zeros where pads count.
TEST(ImportAveragePool, WindowsOfPads) {
  SingleNodeImporter average("AveragePool", 19), norm("LpPool", 18);
  for (SingleNodeImporter* n : {&average, &norm}) {
    n->Input({kF32, {1, 1, 2}}).Attr("kernel_shape", Ints{2}).Attr("pads", Ints{2, 0});
  }
  average.Attr("count_include_pad", int64_t{1});
  for (SingleNodeImporter* n : {&average, &norm}) {
    const auto y = n->Import();
    ASSERT_TRUE(y.ok()) << y.status();
    EXPECT_EQ((*y)[0].shape(), (Shape{1, 1, 3}));
    bool made = false;  // pads that are part of the pooled tensor
    for (const Node& node : n->graph().nodes())
      made |= node.op == "Pad" && node.attrs.Ints("pads") == Ints{0, 0, 2, 0, 0, 0};
    EXPECT_TRUE(made);
  }
}

// Half way between two elements is the second one; outside is the extrapolation value.
TEST(ImportCropAndResize, NearestElements) {
  SingleNodeImporter n("CropAndResize", 1, "com.microsoft");
  n.Input({kF32, {1, 1, 1, 4}}).Constant(Tensor({2, 4}, {0, 0.5, 0, 0.5, 0, 0, 0, 2}));
  n.Constant(HostTensor::FromInts({DType::kInt32, {2}}, Ints{0, 0}))
      .Constant(HostTensor::FromInts({DType::kInt32, {2}}, Ints{1, 2}));
  n.Attr("mode", std::string("nearest")).Attr("extrapolation_value", -5.0);
  EXPECT_THAT(EvaluateNode(n, {Arange({1, 1, 1, 4})}).ToDoubles(), ElementsAre(3, 3, 1, -5));
}

TEST(ImportGridSample, ASequenceIsAnImageOfOneRow) {
  SingleNodeImporter n("GridSample", 20);
  n.Input({kF32, {1, 1, 3}}).Constant(Tensor({1, 4, 1}, {-1, 0, 0.5, 1})).Attr("align_corners", int64_t{1});
  EXPECT_THAT(EvaluateNode(n, {Arange({1, 1, 3})}).ToDoubles(), ElementsAre(1, 2, 2.5, 3));
}

}  // namespace
}  // namespace onnxtrain
