// Import of ONNX's early experiments and of ATen nodes: values by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "frontend/ops/host_eval.h"
#include "frontend/ops/single_node_importer.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;
using Numbers = std::vector<double>;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

constexpr DType kF32 = DType::kFloat32;

// The values of output 0, or none and a failure.
Numbers Outcome(SingleNodeImporter& n, Shape* shape = nullptr) {
  const auto outputs = n.Import();
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  if (!outputs.ok()) return {};
  n.graph().AddOutput("y", outputs->front().id());
  const auto values = Interpret(n.graph(), {});
  EXPECT_TRUE(values.ok()) << values.status();
  if (shape != nullptr) *shape = values->front().shape();
  return values->front().ToDoubles();
}

std::string Refusal(SingleNodeImporter& n) {
  const auto outputs = n.Import();
  return outputs.ok() ? "" : std::string(outputs.status().message());
}

HostTensor Counted(Shape shape) {
  HostTensor t({kF32, std::move(shape)});
  for (int64_t i = 0; i < t.size(); ++i) t.Set(i, static_cast<double>(i));
  return t;
}

TEST(Legacy, ImageScalerAddsABiasPerChannel) {
  SingleNodeImporter n("ImageScaler", 1);
  n.Constant(Counted({1, 2, 1, 2})).Attr("scale", 2.0).Attr("bias", Numbers{10, 20});
  EXPECT_THAT(Outcome(n), ElementsAre(10, 12, 24, 26));
  SingleNodeImporter plain("ImageScaler", 1);
  plain.Constant(Counted({1, 2, 1, 2})).Attr("scale", 2.0);
  EXPECT_THAT(Outcome(plain), ElementsAre(0, 2, 4, 6));
  SingleNodeImporter wrong("ImageScaler", 1);
  wrong.Constant(Counted({1, 2, 1, 2})).Attr("bias", Numbers{1, 2, 3});
  EXPECT_THAT(Refusal(wrong), HasSubstr("bias has 3 numbers for 2 channels"));
}

TEST(Legacy, ErfcIsTheComplement) {
  SingleNodeImporter n("Erfc", 17);
  n.Constant(Counted({2}));
  const Numbers y = Outcome(n);
  ASSERT_EQ(y.size(), 2u);
  EXPECT_EQ(y[0], 1);
  EXPECT_NEAR(y[1], std::erfc(1.0), 1e-6);
}

TEST(Legacy, CropCutsBordersOrTakesAnExtent) {
  Shape shape;
  SingleNodeImporter borders("Crop", 1);  // left, top, right, bottom
  borders.Constant(Counted({1, 1, 4, 5})).Attr("border", Ints{1, 0, 2, 3});
  EXPECT_THAT(Outcome(borders, &shape), ElementsAre(1, 2));
  EXPECT_EQ(shape, (Shape{1, 1, 1, 2}));
  SingleNodeImporter extent("Crop", 1);
  extent.Constant(Counted({1, 1, 4, 5})).Attr("border", Ints{1, 2, 0, 0}).Attr("scale", Ints{2, 3});
  EXPECT_THAT(Outcome(extent), ElementsAre(11, 12, 13, 16, 17, 18));
  SingleNodeImporter wrong("Crop", 1);
  wrong.Constant(Counted({1, 1, 4, 5})).Attr("border", Ints{3, 0, 3, 0});
  EXPECT_THAT(Refusal(wrong), HasSubstr("crops 4 x -1 at 0, 3"));
}

TEST(Legacy, FilledTensors) {
  Shape shape;
  SingleNodeImporter fixed("ConstantFill", 1);
  fixed.Attr("shape", Ints{2}).Attr("extra_shape", Ints{3}).Attr("value", 0.5);
  EXPECT_THAT(Outcome(fixed, &shape), ElementsAreArray(Numbers(6, 0.5)));
  EXPECT_EQ(shape, (Shape{2, 3}));
  SingleNodeImporter given("ConstantFill", 1);
  given.Constant(HostTensor::FromInts({3}))
      .Attr("input_as_shape", int64_t{1})
      .Attr("dtype", int64_t{7})
      .Attr("value", 4.0);
  EXPECT_THAT(Outcome(given), ElementsAre(4, 4, 4));
  SingleNodeImporter like("ConstantFill", 1);
  like.Constant(Counted({2, 1}));
  EXPECT_THAT(Outcome(like, &shape), ElementsAre(0, 0));
  EXPECT_EQ(shape, (Shape{2, 1}));
  SingleNodeImporter values("GivenTensorFill", 1);
  values.Attr("shape", Ints{2, 1}).Attr("values", Numbers{3, 4});
  EXPECT_THAT(Outcome(values, &shape), ElementsAre(3, 4));
  EXPECT_EQ(shape, (Shape{2, 1}));
  SingleNodeImporter wrong("GivenTensorFill", 1);
  wrong.Attr("shape", Ints{2, 2}).Attr("values", Numbers{3, 4});
  EXPECT_THAT(Refusal(wrong), HasSubstr("2 values for the shape"));
}

TEST(Legacy, DynamicSliceHasNoSteps) {
  SingleNodeImporter n("DynamicSlice", 1);
  n.Constant(Counted({4, 2})).Constant(HostTensor::FromInts({1})).Constant(HostTensor::FromInts({-1}));
  n.Constant(HostTensor::FromInts({0}));
  EXPECT_THAT(Outcome(n), ElementsAre(2, 3, 4, 5));
}

TEST(Legacy, GruUnitKeepsTheStateBehindTheEnd) {
  const HostTensor state = Counted({1, 2, 1}), gates = Counted({1, 2, 3});
  const auto step = [](double h, double u, double n) {
    const double s = 1 / (1 + std::exp(-u));
    return h * s + std::tanh(n) * (1 - s);
  };
  for (bool drops : {false, true}) {
    SingleNodeImporter n("GRUUnit", 1);
    n.Constant(state).Constant(gates).Constant(HostTensor::FromInts({3, 2})).Constant(HostTensor::FromInts({2}));
    n.Attr("drop_states", int64_t{drops});
    const Numbers y = Outcome(n);
    ASSERT_EQ(y.size(), 2u);
    EXPECT_NEAR(y[0], step(0, 1, 2), 1e-6);
    EXPECT_EQ(y[1], drops ? 0 : 1);
  }
  SingleNodeImporter all("GRUUnit", 1);
  all.Constant(state).Constant(gates);
  EXPECT_NEAR(Outcome(all)[1], step(1, 4, 5), 1e-6);
  SingleNodeImporter wrong("GRUUnit", 1);
  wrong.Constant(state).Constant(Counted({1, 2, 2}));
  EXPECT_THAT(Refusal(wrong), HasSubstr("gates [1,N,3D]"));
}

TEST(Legacy, AtenNamesItsFunction) {
  for (std::string_view domain : {"", "org.pytorch.aten"}) {
    SingleNodeImporter n("ATen", 1, domain);
    n.Constant(Counted({1, 2})).Constant(Counted({2, 1})).Attr("operator", std::string("mm"));
    EXPECT_THAT(Outcome(n), ElementsAre(1));
  }
  SingleNodeImporter wrong("ATen", 1);
  wrong.Constant(Counted({2})).Attr("operator", std::string("unique_dim"));
  EXPECT_THAT(Refusal(wrong), HasSubstr("ATen's 'unique_dim' with 1 inputs"));
}

}  // namespace
}  // namespace onnxtrain
