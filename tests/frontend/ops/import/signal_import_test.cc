// Fourier transforms against their definition, and what linear models of ai.onnx.ml compute.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>

#include "frontend/ops/host_eval.h"
#include "tests/frontend/ops/import/import_fixture.h"

namespace onnxtrain {
namespace {

using Numbers = std::vector<double>;
using ComplexNumbers = std::vector<std::complex<double>>;

constexpr char kMl[] = "ai.onnx.ml";

Numbers Ramp(int64_t n) {
  Numbers values(n);
  for (int64_t i = 0; i < n; ++i) values[i] = std::sin(1.7 * static_cast<double>(i * i % 97)) + 0.1;
  return values;
}

// Output `which` of the node for one fed float64 input x0.
HostTensor Evaluate(SingleNodeImporter& node, const HostTensor& x, size_t which = 0) {
  const auto outputs = node.Import();
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  if (!outputs.ok()) return {};
  node.graph().AddOutput("y", (*outputs)[which].id());
  const auto result = Interpret(node.graph(), {{"x0", x}});
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? (*result)[0] : HostTensor();
}

void ExpectNear(const HostTensor& got, const Numbers& want, double tolerance) {
  ASSERT_EQ(static_cast<size_t>(got.size()), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got.At(static_cast<int64_t>(i)), want[i], tolerance) << i;
}

// The definition.
Numbers Transformed(const ComplexNumbers& x, bool inverse, size_t count) {
  const auto n = static_cast<double>(x.size());
  Numbers y;
  for (size_t k = 0; k < count; ++k) {
    std::complex<double> sum = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double turns = static_cast<double>(k * i % x.size()) / n;
      sum += x[i] * std::polar(1.0, (inverse ? 2 : -2) * M_PI * turns);
    }
    if (inverse) sum /= n;
    y.insert(y.end(), {sum.real(), sum.imag()});
  }
  return y;
}

class DftOfLength : public ::testing::TestWithParam<int64_t> {};
// One product, several factors, a prime above one product's limit, a prime factor above it.
INSTANTIATE_TEST_SUITE_P(Lengths, DftOfLength, ::testing::Values(1, 2, 7, 100, 128, 131, 390, 1024, 786));

TEST_P(DftOfLength, IsTheDefinition) {
  const int64_t n = GetParam();
  const Numbers values = Ramp(2 * n);
  ComplexNumbers x;
  for (int64_t i = 0; i < n; ++i) x.emplace_back(values[2 * i], values[2 * i + 1]);
  const Type type{DType::kFloat64, {1, n, 2}};
  for (bool inverse : {false, true}) {
    const HostTensor y = Evaluate(SingleNodeImporter("DFT", 17).Input(type).Attr("inverse", int64_t{inverse}),
                                  HostTensor::FromDoubles(type, values));
    ExpectNear(y, Transformed(x, inverse, n), 1e-10);
  }
}

TEST_P(DftOfLength, OneSidedAndBack) {
  const int64_t n = GetParam();
  const Numbers values = Ramp(n);
  const Type real{DType::kFloat64, {1, n, 1}};
  const HostTensor half = Evaluate(SingleNodeImporter("DFT", 20).Input(real).Attr("onesided", int64_t{1}),
                                   HostTensor::FromDoubles(real, values));
  ExpectNear(half, Transformed(ComplexNumbers(values.begin(), values.end()), false, n / 2 + 1), 1e-10);
  SingleNodeImporter back("DFT", 20);
  back.Input(half.type()).Constant(HostTensor::FromInts({n})).Attr("onesided", int64_t{1}).Attr("inverse", int64_t{1});
  const HostTensor again = Evaluate(back, half);
  EXPECT_EQ(again.shape(), real.shape);
  ExpectNear(again, values, 1e-10);
}

TEST(Dft, SaysItsLimit) {
  const auto refused = SingleNodeImporter("DFT", 17).Input({DType::kFloat32, {1, 4099, 1}}).Import();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("limit of 4096"), std::string::npos) << refused.status();
}

// ONNX asks for a last axis of one; files of real signals without it are common.
class StftOfShape : public testing::TestWithParam<Shape> {};

TEST_P(StftOfShape, FramesStartAtEachStep) {
  const Type type{DType::kFloat64, GetParam()};
  const Numbers values = Ramp(22), window = {0.5, 1, 2, 1};
  SingleNodeImporter node("STFT", 17);
  node.Input(type)
      .Constant(HostTensor::FromInts({3}))
      .Constant(HostTensor::FromDoubles({DType::kFloat64, {4}}, window));
  const HostTensor y = Evaluate(node, HostTensor::FromDoubles(type, values));
  EXPECT_EQ(y.shape(), (Shape{2, 3, 3, 2}));
  Numbers want;
  for (int64_t sample = 0; sample < 2; ++sample) {
    for (int64_t frame = 0; frame < 3; ++frame) {
      ComplexNumbers part;
      for (int64_t i = 0; i < 4; ++i) part.emplace_back(values[sample * 11 + frame * 3 + i] * window[i], 0);
      const Numbers transformed = Transformed(part, false, 3);
      want.insert(want.end(), transformed.begin(), transformed.end());
    }
  }
  ExpectNear(y, want, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Signals, StftOfShape, testing::Values(Shape{2, 11, 1}, Shape{2, 11}));

TEST(Stft, RefusesStepsThatDoNotAdvance) {
  for (int64_t step : {0, -128}) {
    SingleNodeImporter node("STFT", 17);
    node.Input({DType::kFloat32, {1, 128, 1}})
        .Constant(HostTensor::FromInts({step}))
        .Absent()
        .Constant(HostTensor::FromInts({16}));
    const auto refused = node.Import();
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.status().message().find("frame_step"), std::string::npos) << refused.status();
  }
}

// Numbers of onnxruntime.
const Type kRows{DType::kFloat64, {3, 2}};
const HostTensor& Rows() {
  static const HostTensor rows = HostTensor::FromDoubles(kRows, Numbers{-1, .5, .2, .3, 2, 1});
  return rows;
}

HostTensor Classified(const char* transform, Numbers coefficients, Numbers intercepts, size_t output) {
  SingleNodeImporter node("LinearClassifier", 1, kMl);
  node.Input(kRows).Outputs(2).Attr("coefficients", std::move(coefficients)).Attr("intercepts", std::move(intercepts));
  return Evaluate(node.Attr("post_transform", std::string(transform)).Attr("classlabels_ints", Shape{7, 9}), Rows(),
                  output);
}

TEST(Ml, LinearClassifierOfTwoClassesInOneRow) {
  ExpectNear(Classified("LOGISTIC", {1, 2}, {-.5}, 1), {.622459, .377541, .425557, .574443, .029312, .970688}, 1e-6);
  ExpectNear(Classified("LOGISTIC", {1, 2}, {-.5}, 0), {7, 9, 9}, 0);
  ExpectNear(Classified("NONE", {1, 2}, {-.5}, 1), {1.5, -.5, .7, .3, -2.5, 3.5}, 1e-12);
}

TEST(Ml, LinearClassifierWithARowPerClass) {
  ExpectNear(Classified("SOFTMAX", {1, 2, -1, -2}, {-.5, .5}, 1),
             {.268941, .731059, .645656, .354344, .999089, .000911}, 1e-6);
  ExpectNear(Classified("NONE", {1, 2, -1, -2}, {-.5, .5}, 0), {9, 7, 7}, 0);
}

TEST(Ml, LinearRegressorWithScoresOfZero) {
  SingleNodeImporter node("LinearRegressor", 1, kMl);
  node.Input(kRows)
      .Attr("coefficients", Numbers{1, 2, 3, 4})
      .Attr("intercepts", Numbers{1, 2})
      .Attr("targets", int64_t{2});
  ExpectNear(Evaluate(node.Attr("post_transform", std::string("SOFTMAX_ZERO")), Rows()),
             {.5, .5, .119203, .880797, .000911, .999089}, 1e-6);
}

TEST(Ml, Normalizer) {
  const HostTensor x = HostTensor::FromDoubles(kRows, Numbers{-1, -2, 0, 0, 3, -4});
  auto normalized = [&](const char* norm) {
    return Evaluate(SingleNodeImporter("Normalizer", 1, kMl).Input(kRows).Attr("norm", std::string(norm)), x);
  };
  ExpectNear(normalized("MAX"), {1, 2, 0, 0, 1, -4. / 3}, 1e-12);
  ExpectNear(normalized("L1"), {-1. / 3, -2. / 3, 0, 0, 3. / 7, -4. / 7}, 1e-12);
  ExpectNear(normalized("L2"), {-1 / std::sqrt(5), -2 / std::sqrt(5), 0, 0, .6, -.8}, 1e-12);
}

TEST(Ml, ImputerAndFeatures) {
  const HostTensor x = HostTensor::FromDoubles(kRows, Numbers{NAN, 1, 2, NAN, 3, 4});
  SingleNodeImporter imputer("Imputer", 1, kMl);
  imputer.Input(kRows).Attr("imputed_value_floats", Numbers{7, 8}).Attr("replaced_value_float", double{NAN});
  ExpectNear(Evaluate(imputer, x), {7, 1, 2, 8, 3, 4}, 0);
  SingleNodeImporter features("FeatureVectorizer", 1, kMl);
  ExpectNear(Evaluate(features.Input(kRows).Attr("inputdimensions", Shape{3}), Rows()), {-1, .5, 0, .2, .3, 0, 2, 1, 0},
             0);
}

}  // namespace
}  // namespace onnxtrain
