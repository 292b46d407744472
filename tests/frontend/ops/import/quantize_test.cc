// Quantized operators at import: numbers, gradients and what becomes of them. Numbers beyond these are compared by the
// conformance cases.
#include <gtest/gtest.h>

#include "frontend/ops/host_eval.h"
#include "frontend/ops/quantize.h"
#include "frontend/passes/differentiate.h"
#include "tests/frontend/ops/import/import_fixture.h"

namespace onnxtrain {
namespace {

constexpr DType kF32 = DType::kFloat32;

HostTensor Floats(Shape shape, std::vector<double> values) {
  return HostTensor::FromDoubles({kF32, std::move(shape)}, values);
}
HostTensor Whole(DType dtype, Shape shape, std::vector<int64_t> values) {
  return HostTensor::FromInts({dtype, std::move(shape)}, values);
}

std::vector<double> Evaluate(SingleNodeImporter& n, Val y, const HostTensor& x) {
  n.graph().AddOutput("y", y.id());
  const auto results = Interpret(n.graph(), {{"x0", x}});
  EXPECT_TRUE(results.ok()) << results.status();
  return results.ok() ? results->front().ToDoubles() : std::vector<double>();
}

TEST(Quantize, RoundsToEvenAndSaturates) {
  SingleNodeImporter n("QuantizeLinear", 13);
  n.Input({kF32, {6}}).Constant(Floats({}, {2})).Constant(Whole(DType::kInt8, {}, {1}));
  const auto y = n.Import();
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(Evaluate(n, y->front(), Floats({6}, {0, 1, 3, 5, 1000, -1000})),
            (std::vector<double>{1, 1, 3, 3, 127, -128}));
}

TEST(Quantize, TheAxisMayBeNegativeAndBlocksRepeatScales) {
  SingleNodeImporter axis("DequantizeLinear", 21), blocks("DequantizeLinear", 21);
  axis.Input({DType::kInt8, {2, 3}}).Constant(Floats({2}, {1, 10})).Attr("axis", int64_t{-2});
  blocks.Input({DType::kInt8, {1, 5}})
      .Constant(Floats({1, 3}, {1, 10, 100}))
      .Attr("axis", int64_t{1})
      .Attr("block_size", int64_t{2});
  const auto y = axis.Import(), z = blocks.Import();
  ASSERT_TRUE(y.ok() && z.ok()) << y.status() << z.status();
  EXPECT_EQ(Evaluate(axis, y->front(), Whole(DType::kInt8, {2, 3}, {1, 2, 3, 4, 5, 6})),
            (std::vector<double>{1, 2, 3, 40, 50, 60}));
  EXPECT_EQ(Evaluate(blocks, z->front(), Whole(DType::kInt8, {1, 5}, {1, 2, 3, 4, 5})),
            (std::vector<double>{1, 2, 30, 40, 500}));
}

TEST(Quantize, RefusesScalesThatDoNotFit) {
  struct {
    Shape scale;
    int64_t axis, block;
  } cases[] = {{{3}, 0, 0},    {{2}, 5, 0},    {{2}, -3, 0},    {{2, 3}, 0, 0},
               {{2, 2}, 1, 0}, {{2, 1}, 1, 2}, {{2, 2}, 1, -1}, {{0}, 0, 0}};
  for (const auto& c : cases) {
    SingleNodeImporter n("DequantizeLinear", 21);
    n.Input({DType::kInt8, {2, 3}})
        .Constant(HostTensor({kF32, c.scale}))
        .Attr("axis", c.axis)
        .Attr("block_size", c.block);
    EXPECT_FALSE(n.Import().ok()) << ToString(c.scale);
  }
}

// Between the two nodes, a view and a maximum: the gradient still passes, inside the range alone.
TEST(Quantize, GradientPassesStraightThroughThePair) {
  Graph graph;
  Builder b(&graph);
  const Val x = b.Input(InputKind::kFeed, "x", {kF32, {2, 2}});
  const Grid grid = *FindGrid(DType::kUInt8);
  const Val q = Quantized(FakeQuantize(x / 0.5, b.Scalar(kF32, 10), grid), grid);
  const Val moved = Transpose(Reshape(q, {4, 1}), {1, 0});
  const Val y = (GetFloatValues(moved, kF32) - 10.0) * 0.5;
  const Val dy = b.Input(InputKind::kFeed, "dy", {kF32, {1, 4}});
  ASSERT_TRUE(b.status().ok()) << b.status();
  const Seed seed{y.id(), dy.id()};
  const ValueId wrt = x.id();
  const auto grads = Differentiate(&graph, {&seed, 1}, {&wrt, 1});
  ASSERT_TRUE(grads.ok()) << grads.status();
  graph.AddOutput("y", y.id());
  graph.AddOutput("dx", grads->at(wrt));
  const auto results =
      Interpret(graph, {{"x", Floats({2, 2}, {-5.3, 0.3, 122.4, 200})}, {"dy", Floats({1, 4}, {1, 2, 3, 4})}});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[0].ToDoubles(), (std::vector<double>{-5, 0.5, 122.5, 122.5}));
  EXPECT_EQ((*results)[1].ToDoubles(), (std::vector<double>{0, 2, 3, 0}));
}

TEST(Quantize, IntegersThatTrainingLeftAloneStayAsTheyAre) {
  const HostTensor q = Whole(DType::kInt8, {2, 2}, {-128, 7, 100, 127}), scale = Floats({2}, {0.1, 0.003}),
                   zero = Whole(DType::kInt8, {2}, {3, -4});
  const auto layout = ScaleLayout::Create({2, 2}, {2}, 1, 0);
  ASSERT_TRUE(layout.ok());
  HostTensor values = Dequantized(q, scale, &zero, *layout);
  EXPECT_EQ(Requantized(values, q, scale, &zero, *layout).ToInts(), q.ToInts());
  values.Set(1, values.At(1) + 0.0091);
  values.Set(2, 1e6);
  EXPECT_EQ(Requantized(values, q, scale, &zero, *layout).ToInts(), (std::vector<int64_t>{-128, 10, 127, 127}));
}

TEST(Quantize, SmallFloatsHaveGridsToo) {
  SingleNodeImporter n("QuantizeLinear", 19);
  n.Input({kF32, {4}}).Constant(Floats({}, {2})).Constant(HostTensor({DType::kFloat8E4M3FN, {}}));
  const auto q = n.Import();
  ASSERT_TRUE(q.ok()) << q.status();
  EXPECT_EQ(q->front().dtype(), DType::kFloat8E4M3FN);
  EXPECT_EQ(Evaluate(n, q->front(), Floats({4}, {2.2, -34, 3000, 0})), (std::vector<double>{1.125, -16, 448, 0}));
}

std::vector<double> EvaluateQuant(const std::string& mode, bool is_signed, bool narrow, double bits,
                                  std::vector<double> numbers) {
  SingleNodeImporter n("Quant", 1, "qonnx.custom_op.general");
  const Shape shape = {static_cast<int64_t>(numbers.size())};
  n.Input({kF32, shape}).Constant(Floats({}, {0.5})).Constant(Floats({}, {1})).Constant(Floats({}, {bits}));
  n.Attr("signed", int64_t{is_signed}).Attr("narrow", int64_t{narrow}).Attr("rounding_mode", mode);
  const auto y = n.Import();
  EXPECT_TRUE(y.ok()) << y.status();
  return y.ok() ? Evaluate(n, y->front(), Floats(shape, std::move(numbers))) : std::vector<double>();
}

// The scale is 0.5 and the zero point 1: the grid of 3 signed bits goes from −2.5 to 1.
TEST(Quantize, GridsOfQonnxHaveAnyNumberOfBits) {
  const std::vector<double> x = {0.25, 0.75, -0.3, -9, 9};
  EXPECT_EQ(EvaluateQuant("ROUND", true, false, 3, x), (std::vector<double>{0.5, 0.5, -0.5, -2.5, 1}));
  EXPECT_EQ(EvaluateQuant("FLOOR", true, true, 3, x), (std::vector<double>{0, 0.5, -0.5, -2, 1}));
  EXPECT_EQ(EvaluateQuant("CEIL", false, false, 2, x), (std::vector<double>{0.5, 1, 0, -0.5, 1}));
  EXPECT_EQ(EvaluateQuant("HALF_EVEN", false, true, 2, x), (std::vector<double>{0.5, 0.5, -0.5, -0.5, 0.5}));
}

TEST(Quantize, QonnxRefusesWhatItCannotRound) {
  for (const auto& [mode, bits] : {std::pair("HALF_UP", 3.0), {"ROUND", 0.0}, {"ROUND", 33.0}}) {
    SingleNodeImporter n("Quant", 1, "qonnx.custom_op.general");
    n.Input({kF32, {2}}).Constant(Floats({}, {1})).Constant(Floats({}, {0})).Constant(Floats({}, {bits}));
    EXPECT_FALSE(n.Attr("rounding_mode", std::string(mode)).Import().ok()) << mode << bits;
  }
}

TEST(Quantize, BipolarQuantIsTheSign) {
  SingleNodeImporter n("BipolarQuant", 1, "onnx.brevitas");
  n.Input({kF32, {4}}).Constant(Floats({}, {0.5}));
  const auto y = n.Import();
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(Evaluate(n, y->front(), Floats({4}, {-3, -0.1, 0, 2})), (std::vector<double>{-0.5, -0.5, 0.5, 0.5}));
}

TEST(Quantize, ProductsOfIntegersAreSums) {
  SingleNodeImporter n("MatMulInteger", 10);
  n.Input({DType::kUInt8, {1, 3}})
      .Constant(Whole(DType::kInt8, {3, 1}, {1, -2, 3}))
      .Constant(Whole(DType::kUInt8, {}, {10}));
  const auto y = n.Import();
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(y->front().dtype(), DType::kInt32);
  EXPECT_EQ(Evaluate(n, y->front(), Whole(DType::kUInt8, {1, 3}, {11, 12, 200})), (std::vector<double>{567}));
}

}  // namespace
}  // namespace onnxtrain
