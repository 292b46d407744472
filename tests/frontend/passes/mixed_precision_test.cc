#include "frontend/passes/mixed_precision.h"

#include "frontend/ops/builder.h"
#include "frontend/passes/differentiate.h"
#include "frontend/passes/eliminate.h"
#include "frontend/passes/hoist.h"
#include "frontend/passes/pipeline.h"
#include "tests/frontend/passes/testing.h"

namespace onnxtrain {
namespace {

Graph MustLower(const Graph& graph, DType low = DType::kBFloat16) {
  auto lowered = MixedPrecision(graph, low);
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  if (!lowered.ok()) return graph;
  const absl::Status verified = Verify(*lowered);
  EXPECT_TRUE(verified.ok()) << verified;
  return Dce(*lowered);
}

// Text in, text out; and numbers as near as bf16 is.
void Check(std::string_view inputs, std::string_view before, std::string_view after, double tolerance = 0.03) {
  const Graph graph = MustParse(GraphText(inputs, before)), lowered = MustLower(graph);
  EXPECT_EQ(Print(lowered), Print(MustParse(GraphText(inputs, after))));
  ExpectSameNumbers(graph, lowered, tolerance);
}

TEST(MixedPrecision, BetweenProductsValuesStayLow) {
  Check("feed %x: f32[2,3], param %w: f32[3,4], param %b: f32[4], param %v: f32[4,2]",
        "%h: f32[2,4] = MatMul(%x, %w) {trans_a=0, trans_b=0}; %s: f32[2,4] = Add(%h, %b); %r: f32[2,4] = Relu(%s); "
        "%y: f32[2,2] = MatMul(%r, %v) {trans_a=0, trans_b=0}; %y",
        "%1: bf16[2,3] = Cast(%x) {to=\"bf16\"}; %2: bf16[3,4] = Cast(%w) {to=\"bf16\"}; "
        "%h: bf16[2,4] = MatMul(%1, %2) {trans_a=0, trans_b=0}; %3: bf16[4] = Cast(%b) {to=\"bf16\"}; "
        "%s: bf16[2,4] = Add(%h, %3); %r: bf16[2,4] = Relu(%s); %4: bf16[4,2] = Cast(%v) {to=\"bf16\"}; "
        "%y: bf16[2,2] = MatMul(%r, %4) {trans_a=0, trans_b=0}; %5: f32[2,2] = Cast(%y) {to=\"f32\"}; %5 \"y\"");
}

TEST(MixedPrecision, WhatNoProductReadsIsFloatAtOnce) {
  Check("feed %x: f32[2,3], param %w: f32[3,4], param %b: f32[4]",
        "%h: f32[2,4] = MatMul(%x, %w) {trans_a=0, trans_b=0}; %s: f32[2,4] = Add(%h, %b); "
        "%y: f32[2,4] = Softmax(%s) {axis=1}; %y",
        "%1: bf16[2,3] = Cast(%x) {to=\"bf16\"}; %2: bf16[3,4] = Cast(%w) {to=\"bf16\"}; "
        "%h: bf16[2,4] = MatMul(%1, %2) {trans_a=0, trans_b=0}; %3: f32[2,4] = Cast(%h) {to=\"f32\"}; "
        "%s: f32[2,4] = Add(%3, %b); %y: f32[2,4] = Softmax(%s) {axis=1}; %y");
}

TEST(MixedPrecision, WhatOnlyProductsReadIsKeptLow) {
  Check("feed %x: f32[2,3], param %w: f32[3,4], feed %d: f32[2,3]",
        "%p: f32[2,3] = Softmax(%x) {axis=1}; %y: f32[2,4] = MatMul(%p, %w) {trans_a=0, trans_b=0}; "
        "%g: f32[2,3] = SoftmaxGrad(%d, %p) {axis=1}; %y, %g",
        "%p: f32[2,3] = Softmax(%x) {axis=1}; %1: bf16[2,3] = Cast(%p) {to=\"bf16\"}; %2: bf16[3,4] = Cast(%w) "
        "{to=\"bf16\"}; "
        "%y: bf16[2,4] = MatMul(%1, %2) {trans_a=0, trans_b=0}; %3: f32[2,4] = Cast(%y) {to=\"f32\"}; "
        "%4: f32[2,3] = Cast(%1) {to=\"f32\"}; %g: f32[2,3] = SoftmaxGrad(%d, %4) {axis=1}; %3 \"y\", %g");
}

TEST(MixedPrecision, AttentionStaysWholeAndItsMaskFloat) {
  Check("feed %q: f32[2,3,4], feed %k: f32[2,5,4], feed %m: f32[3,5], param %w: f32[4,2]",
        "%a: f32[2,3,4] = Attention(%q, %k, %k, %m) {scale=0.5}; %y: f32[2,3,2] = MatMul(%a, %w) {trans_a=0, "
        "trans_b=0}; %y",
        "%1: bf16[2,3,4] = Cast(%q) {to=\"bf16\"}; %2: bf16[2,5,4] = Cast(%k) {to=\"bf16\"}; "
        "%a: bf16[2,3,4] = Attention(%1, %2, %2, %m) {ratio=0.0, scale=0.5, softcap=0.0, stream=0}; %3: bf16[4,2] = "
        "Cast(%w) {to=\"bf16\"}; "
        "%y: bf16[2,3,2] = MatMul(%a, %3) {trans_a=0, trans_b=0}; %4: f32[2,3,2] = Cast(%y) {to=\"f32\"}; %4 \"y\"",
        0.05);
}

TEST(MixedPrecision, SumsStayFloat) {
  // The residual is read by a norm: it is float32, and so is the sum.
  Check("feed %x: f32[2,3], param %w: f32[3,3], param %s: f32[3], param %b: f32[3]",
        "%h: f32[2,3] = MatMul(%x, %w) {trans_a=0, trans_b=0}; %r: f32[2,3] = Add(%x, %h); "
        "%n: f32[2,3], %m: f32[2,1], %d: f32[2,1] = LayerNorm(%r, %s, %b) {axis=1, epsilon=0.01}; %n",
        "%1: bf16[2,3] = Cast(%x) {to=\"bf16\"}; %2: bf16[3,3] = Cast(%w) {to=\"bf16\"}; "
        "%h: bf16[2,3] = MatMul(%1, %2) {trans_a=0, trans_b=0}; %3: f32[2,3] = Cast(%h) {to=\"f32\"}; "
        "%r: f32[2,3] = Add(%x, %3); "
        "%n: f32[2,3], %m: f32[2,1], %d: f32[2,1] = LayerNorm(%r, %s, %b) {axis=1, epsilon=0.01}; %n",
        0.1);
}

TEST(MixedPrecision, WhatIsNormalizedOverABatchIsKeptLow) {
  const std::string inputs =
      "feed %x: f32[2,3], param %w: f32[3,4], param %s: f32[4], param %b: f32[4], param %v: f32[4,2]";
  const std::string weights = "%1: bf16[2,3] = Cast(%x) {to=\"bf16\"}; %2: bf16[3,4] = Cast(%w) {to=\"bf16\"}; ";
  Check(inputs,
        "%h: f32[2,4] = MatMul(%x, %w) {trans_a=0, trans_b=0}; "
        "%n: f32[2,4], %m: f32[4], %d: f32[4] = BatchNorm(%h, %s, %b) {epsilon=0.01}; "
        "%r: f32[2,4] = Relu(%n); %y: f32[2,2] = MatMul(%r, %v) {trans_a=0, trans_b=0}; %y, %m",
        weights +
            "%h: bf16[2,4] = MatMul(%1, %2) {trans_a=0, trans_b=0}; %3: f32[2,4] = Cast(%h) {to=\"f32\"}; "
            "%n: f32[2,4], %m: f32[4], %d: f32[4] = BatchNorm(%3, %s, %b) {epsilon=0.01}; %4: bf16[2,4] = Cast(%n) "
            "{to=\"bf16\"}; "
            "%r: bf16[2,4] = Relu(%4); %5: bf16[4,2] = Cast(%v) {to=\"bf16\"}; "
            "%y: bf16[2,2] = MatMul(%r, %5) {trans_a=0, trans_b=0}; %6: f32[2,2] = Cast(%y) {to=\"f32\"}; %6 \"y\", %m",
        0.1);
  // What nobody reads as low stays float32, and so does what was float32 before.
  Check("feed %x: f32[2,4], param %w: f32[4,4], param %s: f32[4], param %b: f32[4]",
        "%n: f32[2,4], %m: f32[4], %d: f32[4] = BatchNorm(%x, %s, %b) {epsilon=0.01}; "
        "%h: f32[2,4] = MatMul(%x, %w) {trans_a=0, trans_b=0}; %n, %h",
        "%n: f32[2,4], %m: f32[4], %d: f32[4] = BatchNorm(%x, %s, %b) {epsilon=0.01}; %1: bf16[2,4] = Cast(%x) "
        "{to=\"bf16\"}; "
        "%2: bf16[4,4] = Cast(%w) {to=\"bf16\"}; %h: bf16[2,4] = MatMul(%1, %2) {trans_a=0, trans_b=0}; "
        "%3: f32[2,4] = Cast(%h) {to=\"f32\"}; %n, %3 \"h\"");
}

TEST(MixedPrecision, OnlyExactConstantsFollow) {
  const auto body = [](std::string_view scale) {
    return StrCat("%h: f32[2,3] = MatMul(%x, %w) {trans_a=0, trans_b=0}; %c: f32[] = Constant() {value=f32[](", scale,
                  ")}; %m: f32[2,3] = Mul(%h, %c); %y: f32[2,3] = MatMul(%m, %w) {trans_a=0, trans_b=0}; %y");
  };
  const auto type_of_scaled = [&](std::string_view scale) {
    const Graph lowered = MustLower(MustParse(GraphText("feed %x: f32[2,3], param %w: f32[3,3]", body(scale))));
    for (const Node& node : lowered.nodes()) {
      if (node.op == "Mul") return lowered.type(node.outputs[0]).dtype;
    }
    return DType::kBool;
  };
  EXPECT_EQ(type_of_scaled("0.125"), DType::kBFloat16);
  EXPECT_EQ(type_of_scaled("0.1"), DType::kFloat32);
}

TEST(MixedPrecision, LeavesAlone) {
  const std::pair<std::string_view, std::string_view> kCases[] = {
      // no product; products of other types; products without a sum, as positions are made of
      {"feed %x: f32[2,3], param %w: f32[3]", "%y: f32[2,3] = Mul(%x, %w); %y"},
      {"feed %x: f64[2,3], param %w: f64[3,3]", "%y: f64[2,3] = MatMul(%x, %w) {trans_a=0, trans_b=0}; %y"},
      {"feed %x: f32[2,1], frozen %w: f32[1,3]", "%y: f32[2,3] = MatMul(%x, %w) {trans_a=0, trans_b=0}; %y"},
  };
  for (const auto& [inputs, body] : kCases) {
    const Graph graph = MustParse(GraphText(inputs, body));
    EXPECT_EQ(Print(MustLower(graph)), Print(graph));
  }
}

TEST(MixedPrecision, CastsCancel) {
  const Graph graph =
      MustParse(GraphText("feed %x: f32[2,2], param %w: f32[2,2]",
                          "%a: f32[2,2] = MatMul(%x, %w) {trans_a=0, trans_b=0}; %b: f32[2,2] = MatMul(%x, %w) "
                          "{trans_a=0, trans_b=1}; %c: f32[2,2] = MatMul(%a, %b) {trans_a=1, trans_b=0}; %c"));
  const auto clean = CleanUp(MustLower(graph));
  ASSERT_TRUE(clean.ok()) << clean.status();
  const auto casts =
      std::count_if(clean->nodes().begin(), clean->nodes().end(), [](const Node& n) { return n.op == "Cast"; });
  EXPECT_EQ(casts, 3);  // x, w and the output: each once, none between the products
}

// Forward and backward of a small network: weights' gradients are float32 as soon as their product is made, casts of
// weights are made once per update, and the gradients are those of float32 up to the rounding of bf16.
TEST(MixedPrecision, TrainingGraph) {
  Graph graph;
  Builder b(&graph);
  const auto f32 = [](Shape shape) { return Type{DType::kFloat32, std::move(shape)}; };
  const Val x = b.Input(InputKind::kFeed, "x", f32({4, 2, 8})), w = b.Input(InputKind::kParameter, "w", f32({8, 16})),
            bias = b.Input(InputKind::kParameter, "bias", f32({16})),
            v = b.Input(InputKind::kParameter, "v", f32({16, 3}));
  const Val hidden = b.Op("Gelu", {MatMul(x, w) + bias}, {{"approximate", std::string("none")}});
  const Val loss = ReduceSum(
      b.Op("LogSoftmax", {MatMul(hidden, v)}, {{"axis", int64_t{2}}}) * x.b().Scalar(DType::kFloat32, -0.3), {}, false);
  const std::vector<ValueId> weights = {w.id(), bias.id(), v.id()};
  const auto gradients = Differentiate(&graph, loss.id(), weights, b.Scalar(DType::kFloat32, 1).id());
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  for (ValueId weight : weights) graph.AddOutput(StrCat("grad", weight), gradients->at(weight));
  const auto clean = CleanUp(graph);
  ASSERT_TRUE(clean.ok());
  const auto lowered = CleanUp(MustLower(*clean));
  ASSERT_TRUE(lowered.ok());
  for (const GraphOutput& output : lowered->outputs()) EXPECT_EQ(lowered->type(output.value).dtype, DType::kFloat32);
  for (const Node& node : lowered->nodes()) {
    const DType dtype = lowered->type(node.outputs[0]).dtype;
    const bool low = node.op == "MatMul" || node.op == "GeluGrad" || node.op == "Gelu";
    EXPECT_TRUE(!low || dtype == DType::kBFloat16) << node.op;
    const bool wide = node.op == "ReduceSum" || node.op == "LogSoftmax";
    EXPECT_TRUE(!wide || dtype == DType::kFloat32) << node.op;
  }
  const auto hoisted = Hoist(*lowered, [](const Graph&, const Node& node) { return node.op == "Cast"; });
  ASSERT_TRUE(hoisted.ok());
  EXPECT_EQ(hoisted->derive.outputs().size(), 3);  // of w, bias and v
  const auto inputs = RandomInputs(*clean);
  const auto want = MustRun(*clean, inputs), got = MustRun(*lowered, inputs);
  for (size_t i = 0; i < want.size(); ++i) {
    double error = 0, norm = 0;
    for (int64_t k = 0; k < want[i].size(); ++k) {
      error += std::pow(want[i].At(k) - got[i].At(k), 2);
      norm += std::pow(want[i].At(k), 2);
    }
    EXPECT_LE(std::sqrt(error / norm), 0.02) << i;
    EXPECT_GT(error, 0) << i;
  }
}

}  // namespace
}  // namespace onnxtrain
