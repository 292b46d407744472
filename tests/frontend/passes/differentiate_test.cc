// Differentiate: gradients against central differences, in float64 through the host interpreter, and the graphs it
// makes.
#include "frontend/passes/differentiate.h"

#include "frontend/ops/row.h"
#include "frontend/passes/decompose.h"
#include "frontend/passes/pipeline.h"
#include "tests/frontend/passes/testing.h"

namespace onnxtrain {
namespace {

// The sum of output 0, each element with a weight of its own.
double WeightedSum(const HostTensor& y) {
  double sum = 0;
  for (int64_t i = 0; i < y.size(); ++i) sum += y.At(i) * (1 + 0.3 * std::sin(1.7 * i));
  return sum;
}

HostTensor Weights(const Type& type) {
  HostTensor t(type);
  for (int64_t i = 0; i < t.size(); ++i) t.Set(i, 1 + 0.3 * std::sin(1.7 * i));
  return t;
}

// d WeightedSum(output 0) / d input, by central differences.
HostTensor Numeric(const Graph& graph, std::map<std::string, HostTensor> inputs, const std::string& name) {
  constexpr double h = 1e-5;
  const HostTensor x = inputs.at(name);
  HostTensor gradient(x.type());
  for (int64_t i = 0; i < x.size(); ++i) {
    double sides[2];
    for (int s : {0, 1}) {
      HostTensor moved = x.Clone();
      moved.Set(i, x.At(i) + (s == 1 ? h : -h));
      inputs[name] = moved;
      sides[s] = WeightedSum(MustRun(graph, inputs).at(0));
    }
    gradient.Set(i, (sides[1] - sides[0]) / (2 * h));
  }
  return gradient;
}

void CheckGradients(std::string_view inputs_text, std::string_view body) {
  const Graph forward = MustParse(GraphText(inputs_text, body));
  Graph joint = forward;
  const ValueId y = forward.outputs()[0].value;
  const ValueId seed = joint.AddInput(InputKind::kFeed, "seed", forward.type(y));
  std::vector<ValueId> wrt;
  for (const GraphInput& input : forward.inputs()) {
    if (IsFloat(forward.type(input.value).dtype)) wrt.push_back(input.value);
  }
  const auto gradients = Differentiate(&joint, y, wrt, seed);
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  joint.ClearOutputs();
  for (ValueId v : wrt) {
    ASSERT_TRUE(gradients->contains(v)) << *forward.value(v).name;
    joint.AddOutput(forward.value(v).name, gradients->at(v));
  }
  ASSERT_TRUE(Verify(joint).ok()) << Verify(joint);
  auto inputs = RandomInputs(forward);
  std::map<std::string, HostTensor> joint_inputs = inputs;
  joint_inputs["seed"] = Weights(forward.type(y));
  const auto clean = CleanUp(joint);
  ASSERT_TRUE(clean.ok()) << clean.status();
  const auto exact = MustRun(joint, joint_inputs), cleaned = MustRun(*clean, joint_inputs);
  for (size_t i = 0; i < wrt.size(); ++i) {
    const std::string& name = forward.value(wrt[i]).name;
    ExpectNear(exact[i], Numeric(forward, inputs, name), 1e-7, StrCat(name, " of\n", Print(forward)));
    ExpectNear(exact[i], cleaned[i], 1e-12, StrCat(name, " cleaned up"));
  }
}

TEST(Differentiate, AgreesWithFiniteDifferences) {
  const std::pair<std::string_view, std::string_view> kCases[] = {
      // A value that is read twice; broadcasting; an unused operand side.
      {"feed %x: f64[2,3], param %w: f64[3]",
       "%a: f64[2,3] = Mul(%x, %w); %b: f64[2,3] = Tanh(%a); %c: f64[2,3] = Mul(%b, %a); %d: f64[2,3] = Sub(%c, %x); "
       "%d"},
      // The same value on both sides.
      {"feed %x: f64[3,3]", "%a: f64[3,3] = MatMul(%x, %x) {trans_a=0, trans_b=1}; %b: f64[3,3] = Sigmoid(%a); %b"},
      // Two layers, a shared weight, a loss.
      {"feed %x: f64[4,3], param %w: f64[3,3], param %b: f64[3]",
       "%a: f64[4,3] = MatMul(%x, %w) {trans_a=0, trans_b=0}; %c: f64[4,3] = Add(%a, %b); %h: f64[4,3] = Sigmoid(%c); "
       "%e: f64[4,3] = MatMul(%h, %w) {trans_a=0, trans_b=1}; %f: f64[4] = ReduceMean(%e) {axes=[1], keepdims=0}; %f"},
      // Through a split, of which one part is not used, and a choice by a value that has no gradient.
      {"feed %x: f64[2,6]",
       "%a: f64[2,2], %b: f64[2,1], %c: f64[2,3] = Split(%x) {axis=1, num_outputs=3, sizes=[2, 1, 3]}; "
       "%g: bool[2,2] = Greater(%a, %b); %n: f64[2,2] = Neg(%a); %w: f64[2,2] = Where(%g, %a, %n); %e: f64[2,2] = "
       "Exp(%w); "
       "%z: f64[2,2] = Mul(%e, %b); %s: f64[2,1] = ReduceSum(%c) {axes=[1], keepdims=1}; %y: f64[2,2] = Add(%z, %s); "
       "%y"},
      // Rows whose gradient is that of their decomposition: one input twice, and one input computed from another.
      {"feed %x: f64[2,3,4]", "%y: f64[2,3,4] = Attention(%x, %x, %x) {scale=0.5}; %y"},
      {"feed %q: f64[2,3,4], feed %m: f64[3,3]",
       "%k: f64[2,3,4] = Tanh(%q); %v: f64[2,3,4] = Mul(%k, %q); %y: f64[2,3,4] = Attention(%q, %k, %v, %m) "
       "{scale=0.5}; %y"},
      // A composite with backward rows, with gradients into all of its outputs.
      {"feed %x: f64[2,5], param %g: f64[5], param %b: f64[5]",
       "%y: f64[2,5], %m: f64[2,1], %r: f64[2,1] = LayerNorm(%x, %g, %b) {axis=1, epsilon=1e-05}; %z: f64[2,5] = "
       "Mul(%y, %m); "
       "%w: f64[2,5] = Div(%z, %r); %w"},
  };
  for (const auto& [inputs, body] : kCases) CheckGradients(inputs, body);
}

TEST(Differentiate, SeedsWithOnesWhereNoGradientIsGiven) {
  Graph graph = MustParse(GraphText("feed %x: f32[2]", "%y: f32[2] = Exp(%x); %y"));
  const ValueId x = graph.inputs()[0].value;
  const auto gradients = Differentiate(&graph, graph.outputs()[0].value, std::vector<ValueId>{x});
  ASSERT_TRUE(gradients.ok());
  graph.ClearOutputs();
  graph.AddOutput("dx", gradients->at(x));
  EXPECT_EQ(Print(CleanUp(graph).value()), GraphText("feed %x: f32[2]", "%y: f32[2] = Exp(%x); %y \"dx\""));
}

TEST(Differentiate, SumsOverSeveralSeeds) {
  Graph graph = MustParse(GraphText("feed %x: f32[2], feed %s: f32[2], feed %t: f32[2]",
                                    "%a: f32[2] = Mul(%x, %s); %b: f32[2] = Mul(%x, %t); %a, %b"));
  const ValueId x = 0, s = 1, t = 2;
  const Seed seeds[] = {{3, s}, {4, t}};
  const auto gradients = Differentiate(&graph, seeds, std::vector<ValueId>{x});
  ASSERT_TRUE(gradients.ok());
  graph.ClearOutputs();
  graph.AddOutput("dx", gradients->at(x));
  const auto inputs = RandomInputs(graph);
  const HostTensor dx = MustRun(graph, inputs).at(0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_NEAR(dx.At(i), std::pow(inputs.at("s").At(i), 2) + std::pow(inputs.at("t").At(i), 2), 1e-6);
  }
}

TEST(Differentiate, GivesNoEntryWithoutADifferentiableWay) {
  Graph graph =
      MustParse(GraphText("feed %x: f32[2], feed %y: f32[2], feed %z: f32[2]",
                          "%a: f32[2] = Floor(%x); %b: bool[2] = Greater(%a, %y); %c: f32[2] = Where(%b, %z, %z); %c"));
  const auto gradients = Differentiate(&graph, graph.outputs()[0].value, std::vector<ValueId>{0, 1, 2});
  ASSERT_TRUE(gradients.ok());
  EXPECT_EQ(gradients->size(), 1);
  EXPECT_TRUE(gradients->contains(2));
}

absl::StatusOr<std::vector<Type>> LikeInput(const TypeContext& c) { return std::vector<Type>{c.in(0)}; }

TEST(Differentiate, NamesAllThatHaveNoGradient) {
  static const std::vector<OpRow> rows = {{.name = "test.Opaque", .infer = LikeInput}};
  RegisterOps(rows);
  Graph graph = MustParse(GraphText(
      "feed %x: f32[2], feed %y: f32[2]",
      "%a: f32[2] = test.Opaque(%x) @\"first\"; %b: f32[2] = Exp(%a); %c: f32[2] = test.Opaque(%b) @\"second\"; "
      "%d: f32[2] = test.Opaque(%y) @\"aside\"; %z: f32[2] = Mul(%c, %d); %z"));
  const auto gradients = Differentiate(&graph, graph.outputs()[0].value, std::vector<ValueId>{0});
  EXPECT_EQ(gradients.status().message(), "no gradient for test.Opaque 'first', test.Opaque 'second'");
}

TEST(Differentiate, RefusesWrongSeeds) {
  Graph graph = MustParse(GraphText("feed %x: f32[2], feed %s: f32[3]",
                                    "%y: f32[2] = Exp(%x); %i: i64[2] = Cast(%x) {to=\"i64\"}; %y, %i"));
  EXPECT_EQ(Differentiate(&graph, 2, std::vector<ValueId>{0}, 1).status().message(),
            "a gradient of type f32[3] for a value of type f32[2]");
  EXPECT_EQ(Differentiate(&graph, 3, std::vector<ValueId>{0}).status().message(),
            "a value of type i64[2] has no gradient");
}

TEST(DecomposeNodes, GoesDownToPrimitives) {
  const Graph graph = MustParse(GraphText(
      "feed %q: f32[2,3,4], feed %k: f32[2,5,4], feed %v: f32[2,5,4]",
      "%y: f32[2,3,4] = Attention(%q, %k, %v) {scale=0.5}; %z: f32[2,3,4] = Gelu(%y) {approximate=\"none\"}; %z"));
  const auto attention_only =
      DecomposeNodes(graph, [](const Graph&, const Node& node) { return node.op == "Attention"; });
  ASSERT_TRUE(attention_only.ok());
  ASSERT_TRUE(Verify(*attention_only).ok()) << Verify(*attention_only);
  ExpectSameNumbers(graph, *attention_only, 1e-6);
  int gelus = 0;
  for (const Node& node : attention_only->nodes()) {
    EXPECT_NE(node.op, "Attention");
    gelus += node.op == "Gelu";
  }
  EXPECT_EQ(gelus, 1);
  const auto all = DecomposeNodes(graph, [](const Graph&, const Node&) { return true; });
  ASSERT_TRUE(all.ok());
  for (const Node& node : all->nodes()) EXPECT_EQ(FindOp(node.op)->decompose, nullptr) << node.op;
  ExpectSameNumbers(graph, *all, 1e-6);
}

}  // namespace
}  // namespace onnxtrain
