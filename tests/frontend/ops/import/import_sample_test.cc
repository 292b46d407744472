// Sampling operators that are put together from others: values from elsewhere, gradients against differences in
// float64.
#include <gtest/gtest.h>

#include <cmath>

#include "frontend/base/strings.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/single_node_importer.h"
#include "frontend/passes/differentiate.h"

namespace onnxtrain {
namespace {

constexpr DType kF64 = DType::kFloat64;
using Ints = std::vector<int64_t>;
using Numbers = std::vector<double>;

HostTensor Tensor(Shape shape, const Numbers& values) {
  return HostTensor::FromDoubles({kF64, std::move(shape)}, values);
}

// (i·by) mod of.
HostTensor Scattered(Shape shape, int by, int of, double scale = 1) {
  Numbers values(NumElements(shape));
  for (size_t i = 0; i < values.size(); ++i) values[i] = scale * static_cast<double>((static_cast<int>(i) * by) % of);
  return Tensor(std::move(shape), values);
}

// Imports the node with these inputs as feeds, output 0 as output "y", a weighed sum of it as "loss", and the loss's
// gradients by the float inputs.
struct Imported {
  SingleNodeImporter& node;
  std::map<std::string, HostTensor> feeds;

  Imported(SingleNodeImporter& n, const std::vector<HostTensor>& inputs) : node(n) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      node.Input(inputs[i].type());
      feeds[StrCat("x", i)] = inputs[i];
    }
    const auto outputs = node.Import();
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    if (!outputs.ok()) return;
    const Val y = (*outputs)[0];
    node.graph().AddOutput("y", y.id());
    const Val loss = ReduceSum(y * y.b().Constant(Scattered(y.shape(), 13, 7, 0.3)), {}, false);
    node.graph().AddOutput("loss", loss.id());
  }

  Numbers Values() { return Run()[0].ToDoubles(); }
  std::vector<HostTensor> Run() {
    const auto results = Interpret(node.graph(), feeds);
    EXPECT_TRUE(results.ok()) << results.status();
    return *results;
  }

  // Of input i, by central differences in float64.
  void ExpectGradient(size_t i) {
    const std::string name = StrCat("x", i);
    const ValueId wrt[] = {node.graph().FindInput(name)->value};
    Graph joint = node.graph();
    const auto gradients = Differentiate(&joint, joint.FindOutput("loss")->value, wrt);
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    joint.AddOutput("gradient", gradients->at(wrt[0]));
    const auto results = Interpret(joint, feeds);
    ASSERT_TRUE(results.ok()) << results.status();
    const HostTensor given = feeds[name];
    for (int64_t k = 0; k < given.size(); ++k) {
      double side[2];
      for (int s : {0, 1}) {
        HostTensor moved = given.Clone();
        moved.Set(k, given.At(k) + (s == 0 ? -1e-5 : 1e-5));
        feeds[name] = moved;
        side[s] = Run()[1].At(0);
      }
      feeds[name] = given;
      EXPECT_NEAR((*results)[2].At(k), (side[1] - side[0]) / 2e-5, 1e-6) << name << " " << k;
    }
  }
};

void ExpectNear(const Numbers& got, const Numbers& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << i;
}

// Values as onnxruntime 1.23 gives them: regions inside, partly outside, and wholly outside.
TEST(ImportMaxRoiPool, ValuesAndGradient) {
  SingleNodeImporter n("MaxRoiPool", 21);
  n.Attr("pooled_shape", Ints{2, 3}).Attr("spatial_scale", 0.5);
  const HostTensor rois = Tensor({4, 5}, {0, 1, 1, 9, 7, 1, -3, 2.4, 5, 20, 1, 12, 8, 13, 9, 0, 30, 30, 40, 40});
  Imported pool(n, {Scattered({2, 2, 5, 7}, 37, 101), rois});
  ExpectNear(pool.Values(), {94, 87, 97, 100, 100, 73, 76, 86, 86, 89, 99, 99, 0, 91, 95, 0, 0, 0, 0, 97, 90, 0, 0, 0,
                             10, 10, 0,  0,   0,   0,  93, 93, 0,  0,  0,  0,  0, 0,  0,  0, 0, 0, 0, 0,  0,  0, 0, 0},
             0);
  pool.ExpectGradient(0);
}

TEST(ImportMaxRoiPool, WhatDoesNotFitIsRefused) {
  for (const Ints& shape : {Ints{}, Ints{2}, Ints{0, 2}, Ints{int64_t{1} << 40, 2}}) {
    SingleNodeImporter n("MaxRoiPool", 21);
    n.Input({kF64, {1, 1, 4, 4}}).Input({kF64, {3, 5}}).Attr("pooled_shape", shape);
    EXPECT_FALSE(n.Import().ok());
  }
  SingleNodeImporter n("MaxRoiPool", 21);
  n.Input({kF64, {1, 1, 4, 4}}).Input({kF64, {3, 4}}).Attr("pooled_shape", Ints{2, 2});
  EXPECT_FALSE(n.Import().ok());
}

// Values as onnx's reference implementation (1.20) gives them; at borders, where it moves the place and onnxruntime and
// PyTorch, over two axes, move each element that is read, those of the latter.
TEST(ImportGridSample, CubicVolumes) {
  struct Row {
    const char* padding;
    int64_t align_corners;
    Numbers want;
  };
  const Row kRows[] = {{"zeros", 0, {6.00213, 0.33636, 10.61249, 0.29662, 0.86007, 0.0754, 1.42903, 0.54291}},
                       {"zeros", 1, {9.57336, 4.32062, 16.13025, 7.82243, 1.30344, 3.28456, 4.55636, 7.36042}},
                       {"border", 0, {8.75393, 10.3946, 17.17025, 6.57289, 1.22881, 3.45709, 3.04713, 12.06372}},
                       {"border", 1, {8.97285, 5.60168, 15.52945, 9.13351, 1.09825, 4.66893, 4.36909, 7.90053}},
                       {"reflection", 0, {8.90443, 10.76736, 18.04537, 6.69912, 0.75271, 2.62506, 2.3129, 12.18187}},
                       {"reflection", 1, {8.96676, 8.75559, 15.85113, 8.05672, 0.61391, 4.1313, 4.07306, 9.8334}}};
  const HostTensor grid = Tensor({1, 1, 2, 2, 3}, {-0.9, -0.3, 0.2, 0.5, 1.2, -1.1, 0.1, 0.0, 0.95, -1.3, 0.7, -0.6});
  for (const Row& row : kRows) {
    SCOPED_TRACE(std::string(row.padding) + (row.align_corners != 0 ? ", corners" : ""));
    SingleNodeImporter n("GridSample", 20);
    n.Attr("mode", std::string("cubic"))
        .Attr("padding_mode", std::string(row.padding))
        .Attr("align_corners", row.align_corners);
    Imported sample(n, {Scattered({1, 2, 3, 4, 3}, 29, 17), grid});
    ExpectNear(sample.Values(), row.want, 2e-5);
    sample.ExpectGradient(0);
  }
}

// Away from where the spline changes its piece.
TEST(ImportGridSample, CubicVolumesHaveAGradientByPlace) {
  SingleNodeImporter n("GridSample", 20);
  n.Attr("mode", std::string("cubic")).Attr("padding_mode", std::string("reflection"));
  Imported sample(
      n, {Scattered({1, 2, 3, 4, 3}, 29, 17), Tensor({1, 1, 1, 2, 3}, {-0.91, -0.32, 0.23, 0.57, 1.21, -1.13})});
  sample.ExpectGradient(1);
}

// Σ taps · x at place + tap + offset, between elements linearly, zeros outside.
TEST(ImportDeformConv, Sequences) {
  SingleNodeImporter n("DeformConv", 19);
  n.Attr("kernel_shape", Ints{2}).Attr("pads", Ints{1, 0}).Attr("strides", Ints{1});
  const HostTensor x = Tensor({1, 1, 4}, {1, 2, 4, 8}), w = Tensor({1, 1, 2}, {1, 10}), bias = Tensor({1}, {100});
  const HostTensor offset = Tensor({1, 2, 4}, {0, 0.25, 0.4, 0.3, 0, 0.2, -0.5, 0.6});
  const HostTensor mask = Tensor({1, 2, 4}, {1, 1, 0.5, 1, 1, 2, 1, 1});
  Imported conv(n, {x, w, offset, bias, mask});
  // Places −1 … 2: 0 + 10·1;  1.25 + 20·2.4;  0.5·2.8 + 10·3;  5.2 + 10·8·(1 − 0.6).
  ExpectNear(conv.Values(), {110, 149.25, 131.4, 137.2}, 1e-9);
  for (size_t i : {1, 3, 4}) conv.ExpectGradient(i);
  // Of the rest: by GridSample's kernels, which tests/ops checks on the backends.
  const ValueId wrt[] = {n.graph().FindInput("x0")->value, n.graph().FindInput("x2")->value};
  const auto gradients = Differentiate(&n.graph(), n.graph().FindOutput("loss")->value, wrt);
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_EQ(gradients->size(), 2u);
}

}  // namespace
}  // namespace onnxtrain
