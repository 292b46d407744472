// Windows over more than three spatial axes, most of which are single elements.
#include <gtest/gtest.h>

#include <cmath>

#include "frontend/ops/single_node_importer.h"
#include "tests/backends/cpu/testing.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;

HostTensor Wave(Shape shape) {
  std::vector<double> values(NumElements(shape));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i * i % 101));
  return HostTensor::FromDoubles({DType::kFloat32, std::move(shape)}, values);
}

// The first output of a node of constants.
HostTensor Evaluate(SingleNodeImporter& n) {
  const auto outputs = n.Import();
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  if (!outputs.ok()) return HostTensor::Scalar(DType::kFloat32, 0);
  n.graph().AddOutput("y", outputs->front().id());
  return RunOnce(Cpu(), n.graph(), {})[0];
}

// [N,H,W,C] → [N,C,H,W]
HostTensor ChannelsFirst(const HostTensor& t) {
  const int64_t n = t.shape()[0], h = t.shape()[1], w = t.shape()[2], c = t.shape()[3];
  std::vector<double> values;
  for (int64_t i = 0; i < n * c * h * w; ++i) {
    const int64_t x = i % w, y = i / w % h, channel = i / (w * h) % c, sample = i / (w * h * c);
    values.push_back(t.At(((sample * h + y) * w + x) * c + channel));
  }
  return HostTensor::FromDoubles({DType::kFloat32, {n, c, h, w}}, values);
}

HostTensor Reshaped(const HostTensor& t, Shape shape) {
  return HostTensor::FromDoubles({DType::kFloat32, std::move(shape)}, t.ToDoubles());
}

class Pools : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(WindowAxes, Pools, testing::Values("MaxPool", "AveragePool", "LpPool"));

TEST_P(Pools, OverAllAxesOfPicturesEqualThoseOverTwo) {
  const HostTensor data = Wave({2, 5, 4, 3});
  SingleNodeImporter all(GetParam(), 18), two(GetParam(), 18);
  all.Constant(Reshaped(data, {1, 1, 2, 5, 4, 3})).Attr("kernel_shape", Ints{1, 3, 2, 1});
  all.Attr("strides", Ints{1, 2, 2, 1}).Attr("pads", Ints{0, 1, 0, 0, 0, 1, 0, 0});
  two.Constant(ChannelsFirst(data)).Attr("kernel_shape", Ints{3, 2}).Attr("strides", Ints{2, 2});
  two.Attr("pads", Ints{1, 0, 1, 0});
  const HostTensor result = Evaluate(all), expected = Evaluate(two);
  ASSERT_EQ(result.shape(), (Shape{1, 1, 2, 3, 2, 3}));
  EXPECT_EQ(ChannelsFirst(Reshaped(result, {2, 3, 2, 3})).ToDoubles(), expected.ToDoubles());
}

TEST(WindowAxes, ConvolutionsKeepTheirChannels) {
  const HostTensor data = Wave({2, 5, 4, 3}), kernel = Wave({4, 1, 1, 2, 2, 1});
  SingleNodeImporter all("Conv", 11), two("Conv", 11);
  all.Constant(Reshaped(data, {1, 1, 2, 5, 4, 3})).Constant(kernel).Constant(Wave({4}));
  const HostTensor planes = Reshaped(ChannelsFirst(data), {6, 1, 5, 4});
  two.Constant(planes).Constant(Reshaped(kernel, {4, 1, 2, 2})).Constant(Wave({4}));
  const HostTensor result = Evaluate(all), expected = Evaluate(two);
  ASSERT_EQ(result.shape(), (Shape{1, 4, 2, 4, 3, 3}));
  const auto value = [&](int64_t sample, int64_t channel, int64_t out, int64_t pixel) {
    return result.At(((out * 2 + sample) * 12 + pixel) * 3 + channel);
  };
  for (int64_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(value(i / 144, i / 48 % 3, i / 12 % 4, i % 12), expected.At(i), 1e-6) << i;
}

TEST(WindowAxes, MoreThanThreeTrueWindowsAndIndicesAreRefused) {
  SingleNodeImporter four("MaxPool", 12), indices("MaxPool", 12);
  four.Input({DType::kFloat32, {1, 1, 4, 4, 4, 4}}).Attr("kernel_shape", Ints{2, 2, 2, 2});
  indices.Input({DType::kFloat32, {1, 1, 4, 4, 4, 4}}).Attr("kernel_shape", Ints{1, 2, 2, 1}).Outputs(2);
  EXPECT_NE(four.Import().status().message().find("windows over 4 spatial axes"), std::string_view::npos);
  EXPECT_NE(indices.Import().status().message().find("the Indices output of 4"), std::string_view::npos);
}

}  // namespace
}  // namespace onnxtrain
