#include "frontend/passes/hoist.h"

#include "tests/frontend/passes/testing.h"

namespace onnxtrain {
namespace {

bool CastOrTranspose(const Graph&, const Node& node) { return node.op == "Cast" || node.op == "Transpose"; }

Hoisted MustHoist(const Graph& graph) {
  auto hoisted = Hoist(graph, CastOrTranspose);
  EXPECT_TRUE(hoisted.ok()) << hoisted.status();
  if (!hoisted.ok()) return {};
  EXPECT_TRUE(Verify(hoisted->main).ok()) << Verify(hoisted->main);
  EXPECT_TRUE(Verify(hoisted->derive).ok()) << Verify(hoisted->derive);
  return *std::move(hoisted);
}

// Running derive, then main, gives what the graph gives.
void ExpectSameInTwoSteps(const Graph& graph, const Hoisted& hoisted) {
  const auto inputs = RandomInputs(graph);
  std::map<std::string, HostTensor> of_main, of_derive;
  for (const GraphInput& input : hoisted.derive.inputs()) of_derive[input.name] = inputs.at(input.name);
  const auto derived = MustRun(hoisted.derive, of_derive);
  for (const GraphInput& input : hoisted.main.inputs()) {
    if (input.kind != InputKind::kDerived) of_main[input.name] = inputs.at(input.name);
  }
  for (size_t i = 0; i < derived.size(); ++i) of_main[hoisted.derive.outputs()[i].name] = derived[i];
  const auto expected = MustRun(graph, inputs), got = MustRun(hoisted.main, of_main);
  for (size_t i = 0; i < expected.size(); ++i) ExpectNear(expected[i], got[i], 0);
}

constexpr std::string_view kInputs = "feed %x: f32[2,3], param %w: f32[4,3], frozen %v: f32[4], state %s: f32[4]";

TEST(Hoist, SplitsOffWhatDependsOnWeightsAlone) {
  const Graph graph = MustParse(GraphText(kInputs,
                                          "%c: f32[] = Constant() {value=f32[](2)}; %n: f32[4,3] = Mul(%w, %c); %t: "
                                          "f32[3,4] = Transpose(%n) {perm=[1, 0]}; "
                                          "%y: f32[2,4] = MatMul(%x, %t) {trans_a=0, trans_b=0}; %h: f16[2,4] = "
                                          "Cast(%y) {to=\"f16\"}; %k: f16[4] = Cast(%s) {to=\"f16\"}; "
                                          "%e: f32[4] = Exp(%v); %z: f32[2,4] = Add(%y, %e); %z, %h, %k"));
  const Hoisted hoisted = MustHoist(graph);
  ASSERT_EQ(hoisted.derive.outputs().size(), 1);
  const std::string name = hoisted.derive.outputs()[0].name;
  EXPECT_EQ(name.substr(0, 14), "Transpose(Mul#");
  EXPECT_EQ(
      Print(hoisted.derive),
      GraphText("param %w: f32[4,3]", StrCat("%c: f32[] = Constant() {value=f32[](2)}; %n: f32[4,3] = Mul(%w, %c); "
                                             "%t: f32[3,4] = Transpose(%n) {perm=[1, 0]}; %t \"",
                                             name, "\"")));
  EXPECT_EQ(hoisted.main.inputs().back().kind, InputKind::kDerived);
  EXPECT_EQ(hoisted.main.inputs().back().name, name);
  EXPECT_EQ(hoisted.main.inputs().size(), graph.inputs().size() + 1);
  EXPECT_EQ(hoisted.main.nodes().size(), 5);
  ExpectSameInTwoSteps(graph, hoisted);
}

TEST(Hoist, NamesAreThoseOfTheComputation) {
  const std::string same[] = {
      GraphText(kInputs,
                "%t: f32[3,4] = Transpose(%w) {perm=[1, 0]}; %y: f32[2,4] = MatMul(%x, %t) {trans_a=0, trans_b=0}; %y"),
      GraphText("param %9 \"w\": f32[4,3]",
                "%n: f32[4,3] = Neg(%9); %other: f32[3,4] = Transpose(%9) {perm=[1, 0]} @\"elsewhere\"; %n, %other"),
  };
  const std::string first = MustHoist(MustParse(same[0])).derive.outputs().at(0).name;
  EXPECT_EQ(first.substr(0, 13), "Transpose(w)#");
  EXPECT_EQ(MustHoist(MustParse(same[1])).derive.outputs().at(0).name, first);
  const Graph other = MustParse(
      GraphText(kInputs, "%t: f16[4,3] = Cast(%w) {to=\"f16\"}; %u: f64[4,3] = Cast(%w) {to=\"f64\"}; %t, %u"));
  const Hoisted two = MustHoist(other);
  ASSERT_EQ(two.derive.outputs().size(), 2);
  EXPECT_NE(two.derive.outputs()[0].name, two.derive.outputs()[1].name);
  ExpectSameInTwoSteps(other, two);
}

TEST(Hoist, ComputesTheSameOnce) {
  const Graph graph = MustParse(GraphText(
      kInputs,
      "%t: f16[4,3] = Cast(%w) {to=\"f16\"}; %u: f16[4,3] = Cast(%w) {to=\"f16\"}; %z: f16[4,3] = Mul(%t, %u); "
      "%d: f64[4,3] = Cast(%t) {to=\"f64\"}; %z, %d"));
  const Hoisted hoisted = MustHoist(graph);
  EXPECT_EQ(hoisted.derive.outputs().size(), 2);  // the f16 weight, and its f64 form
  ExpectSameInTwoSteps(graph, hoisted);
}

// It would have to be derived again before every run.
TEST(Hoist, WhatTheProgramChangesIsNoWeight) {
  const Graph graph = MustParse(GraphText(kInputs,
                                          "%t: f32[3,4] = Transpose(%w) {perm=[1, 0]}; %y: f32[2,4] = MatMul(%x, %t) "
                                          "{trans_a=0, trans_b=0}; %h: f16[4] = Cast(%v) {to=\"f16\"}; %n: f32[4,3] = "
                                          "Neg(%w); %y, %h, %n \"w_new\" into %w"));
  const Hoisted hoisted = MustHoist(graph);
  ASSERT_EQ(hoisted.derive.outputs().size(), 1);
  EXPECT_EQ(hoisted.derive.outputs()[0].name.substr(0, 7), "Cast(v)");
}

TEST(Hoist, LeavesOtherGraphsAlone) {
  const Graph graph = MustParse(GraphText(
      kInputs, "%y: f32[2,4] = MatMul(%x, %w) {trans_a=0, trans_b=1}; %t: f32[4,2] = Transpose(%y) {perm=[1, 0]}; %t"));
  const Hoisted hoisted = MustHoist(graph);
  EXPECT_TRUE(hoisted.main == graph);
  EXPECT_TRUE(hoisted.derive.outputs().empty());
  EXPECT_TRUE(hoisted.derive.inputs().empty());
}

}  // namespace
}  // namespace onnxtrain
