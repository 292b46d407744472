// NaN stays NaN behind a fused Relu: a model that has diverged shows it.
#include <cmath>
#include <limits>

#include "frontend/ops/builder.h"
#include "tests/backends/cpu/testing.h"

namespace onnxtrain {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

HostTensor Filled(const Type& type, double value) {
  return HostTensor::FromDoubles(type, std::vector<double>(type.elements(), value));
}

// Runs `graph` with one feed "x" and weights of 1.
HostTensor RunWith(const Graph& graph, const HostTensor& x) {
  std::map<std::string, HostTensor> inputs;
  for (const GraphInput& input : graph.inputs())
    inputs[input.name] = input.name == "x" ? x : Filled(graph.type(input.value), 1);
  return RunOnce(Cpu(), graph, inputs)[0];
}

Graph ReluOfProduct(DType dtype, bool bias) {
  Graph graph;
  Builder b(&graph);
  const Val x = Cast(b.Input(InputKind::kFeed, "x", {DType::kFloat32, {5, 7}}), dtype);
  const Val w = Cast(b.Input(InputKind::kFeed, "w", {DType::kFloat32, {7, 33}}), dtype);
  Val y = MatMul(x, w);
  if (bias) y = y + Cast(b.Input(InputKind::kFeed, "b", {DType::kFloat32, {33}}), dtype);
  graph.AddOutput("y", b.Op("Relu", {y}).id());
  EXPECT_TRUE(b.status().ok()) << b.status().message();
  return graph;
}

Graph ReluOfConv(DType dtype) {
  Graph graph;
  Builder b(&graph);
  const auto conv = [&](Val x, const char* name, int64_t out) {
    const Val w = Cast(b.Input(InputKind::kFeed, name, {DType::kFloat32, {out, x.dim(1), 3, 3}}), dtype);
    return b.Op("Conv", {x, w},
                {{"strides", std::vector<int64_t>{1, 1}},
                 {"pads", std::vector<int64_t>{1, 1, 1, 1}},
                 {"dilations", std::vector<int64_t>{1, 1}},
                 {"group", int64_t{1}}});
  };
  const Val x = Cast(b.Input(InputKind::kFeed, "x", {DType::kFloat32, {2, 16, 9, 9}}), dtype);
  graph.AddOutput("y", Cast(b.Op("Relu", {conv(b.Op("Relu", {conv(x, "w", 32)}), "v", 8)}), DType::kFloat32).id());
  EXPECT_TRUE(b.status().ok()) << b.status().message();
  return graph;
}

void ExpectRelu(const Graph& graph) {
  const Type& x = graph.type(graph.inputs()[0].value);
  const HostTensor nan = RunWith(graph, Filled(x, kNaN)), negative = RunWith(graph, Filled(x, -1)),
                   lowest = RunWith(graph, Filled(x, -kInfinity)), positive = RunWith(graph, Filled(x, 2));
  for (int64_t i = 0; i < nan.size(); ++i) {
    ASSERT_TRUE(std::isnan(nan.At(i))) << i << ": " << nan.At(i);
    ASSERT_EQ(negative.At(i), 0);
    ASSERT_EQ(lowest.At(i), 0);
    ASSERT_GT(positive.At(i), 0);
  }
}

TEST(CpuNan, PassesAReluThatIsFusedIntoAProduct) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const bool bias : {false, true}) ExpectRelu(ReluOfProduct(dtype, bias));
  }
}

TEST(CpuNan, PassesAReluThatIsFusedIntoAConvolution) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) ExpectRelu(ReluOfConv(dtype));
}

}  // namespace
}  // namespace onnxtrain
