// Simplify, FoldConstants, Cse and Dce: text in, text out, and the same numbers from both.
#include "frontend/passes/simplify.h"

#include "frontend/passes/eliminate.h"
#include "frontend/passes/pass.h"
#include "tests/frontend/passes/testing.h"

namespace onnxtrain {
namespace {

const Pass kSimplify = {"simplify", Simplify};
const Pass kCse = {"cse", Cse, HasEqualNodes};
const Pass kFold = {"fold_constants", [](const Graph& g) { return FoldConstants(g); }};
const Pass kDce = {"dce", [](const Graph& g) -> absl::StatusOr<Graph> { return Dce(g); }};

struct Case {
  std::string_view inputs, before, after;
};

void Check(const Case& c, const std::vector<Pass>& passes) {
  const Graph before = MustParse(GraphText(c.inputs, c.before));
  const auto after = RunToFixedPoint(before, passes);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(Print(*after), Print(MustParse(GraphText(c.inputs, c.after)))) << Print(before);
  ExpectSameNumbers(before, *after);
}

TEST(Simplify, PartsWithoutElementsVanish) {
  Check({"feed %x: f32[2,3], feed %y: f32[2,3]",
         "%n: f32[2,0] = Constant() {value=f32[2,0]()}; %z: f32[2,6] = Concat(%n, %x, %y) {axis=1}; %z",
         "%z: f32[2,6] = Concat(%x, %y) {axis=1}; %z"},
        {kSimplify, kDce});
}

TEST(Simplify, AxesThatAreSplitAfterATranspose) {
  constexpr std::string_view x = "feed %x: f32[2,12,32]";
  // Heads merged with the batch: the transposes become one.
  Check(
      {x,
       "%a: f32[2,12,4,8] = Reshape(%x) {shape=[2, 12, 4, 8]}; %b: f32[2,4,12,8] = Transpose(%a) {perm=[0, 2, 1, 3]}; "
       "%c: f32[8,12,8] = Reshape(%b) {shape=[8, 12, 8]}; %d: f32[8,8,12] = Transpose(%c) {perm=[0, 2, 1]}; "
       "%z: f32[2,4,8,12] = Reshape(%d) {shape=[2, 4, 8, 12]}; %z",
       "%a: f32[2,12,4,8] = Reshape(%x) {shape=[2, 12, 4, 8]}; %z: f32[2,4,8,12] = Transpose(%a) {perm=[0, 2, 3, 1]}; "
       "%z"},
      {kSimplify, kDce});
  // A Reshape that merges axes, or cuts across them, stays.
  for (std::string_view shape : {"[2,12,32]", "[8,12,8]", "[2,8,48]", "[768]"}) {
    const std::string text = StrCat(
        "%a: f32[2,12,4,8] = Reshape(%x) {shape=[2, 12, 4, 8]}; %b: f32[2,4,12,8] = Transpose(%a) {perm=[0, 2, 1, "
        "3]}; %z: f32",
        shape, " = Reshape(%b) {shape=", shape, "}; %z");
    Check({x, text, text}, {kSimplify, kDce});
  }
}

TEST(Simplify, Arithmetic) {
  constexpr std::string_view x = "feed %x: f32[2,3]", xy = "feed %x: f32[2,3], feed %y: f32[2,3]";
  const Case kCases[] = {
      {x, "%c: f32[] = Constant() {value=f32[](0)}; %z: f32[2,3] = Add(%x, %c); %z", "%x \"z\""},
      {x, "%c: f32[] = Constant() {value=f32[](0)}; %z: f32[2,3] = Add(%c, %x); %z", "%x \"z\""},
      {x, "%c: f32[3] = Constant() {value=f32[3](splat 0)}; %z: f32[2,3] = Sub(%x, %c); %z", "%x \"z\""},
      {x, "%c: f32[] = Constant() {value=f32[](0)}; %z: f32[2,3] = Sub(%c, %x); %z", "%z: f32[2,3] = Neg(%x); %z"},
      {x, "%c: f32[] = Constant() {value=f32[](1)}; %z: f32[2,3] = Mul(%x, %c); %z", "%x \"z\""},
      {x, "%c: f32[] = Constant() {value=f32[](1)}; %z: f32[2,3] = Div(%x, %c); %z", "%x \"z\""},
      {x, "%c: f32[] = Constant() {value=f32[](1)}; %z: f32[2,3] = Div(%c, %x); %z",
       "%z: f32[2,3] = Reciprocal(%x); %z"},
      {x, "%c: f32[] = Constant() {value=f32[](-1)}; %z: f32[2,3] = Mul(%c, %x); %z", "%z: f32[2,3] = Neg(%x); %z"},
      // Where the neutral operand is the larger one, its shape stays.
      {"feed %x: f32[3]", "%c: f32[2,3] = Constant() {value=f32[2,3](splat 0)}; %z: f32[2,3] = Add(%x, %c); %z",
       "%z: f32[2,3] = Expand(%x) {shape=[2, 3]}; %z"},
      {x,
       "%c: f32[] = Constant() {value=f32[](1)}; %e: f32[2,3] = Expand(%c) {shape=[2, 3]}; %z: f32[2,3] = Mul(%x, %e); "
       "%z",
       "%x \"z\""},
      {x, "%a: f32[2,3] = Neg(%x); %z: f32[2,3] = Neg(%a); %z", "%x \"z\""},
      {x, "%a: f32[2,3] = Neg(%x); %b: f32[6] = Reshape(%a) {shape=[6]}; %z: f32[6] = Neg(%b); %z",
       "%z: f32[6] = Reshape(%x) {shape=[6]}; %z"},
      {xy, "%a: f32[2,3] = Neg(%y); %z: f32[2,3] = Add(%x, %a); %z", "%z: f32[2,3] = Sub(%x, %y); %z"},
      {xy, "%a: f32[2,3] = Neg(%x); %z: f32[2,3] = Add(%a, %y); %z", "%z: f32[2,3] = Sub(%y, %x); %z"},
      {xy, "%a: f32[2,3] = Neg(%y); %z: f32[2,3] = Sub(%x, %a); %z", "%z: f32[2,3] = Add(%x, %y); %z"},
      {xy, "%a: f32[2,3] = Reciprocal(%y); %z: f32[2,3] = Mul(%x, %a); %z", "%z: f32[2,3] = Div(%x, %y); %z"},
      {xy, "%a: f32[2,3] = Reciprocal(%y); %z: f32[2,3] = Div(%x, %a); %z", "%z: f32[2,3] = Mul(%x, %y); %z"},
      {x, "%a: f32[2,3] = Sqrt(%x); %z: f32[2,3] = Reciprocal(%a); %z", "%z: f32[2,3] = Rsqrt(%x); %z"},
      {x, "%c: f32[] = Constant() {value=f32[](1)}; %a: f32[2,3] = Sqrt(%x); %z: f32[2,3] = Div(%c, %a); %z",
       "%z: f32[2,3] = Rsqrt(%x); %z"},
      {x, "%c: f32[] = Constant() {value=f32[](2)}; %z: f32[2,3] = Pow(%x, %c); %z", "%z: f32[2,3] = Mul(%x, %x); %z"},
      {x, "%c: f32[] = Constant() {value=f32[](0.5)}; %z: f32[2,3] = Pow(%x, %c); %z", "%z: f32[2,3] = Sqrt(%x); %z"},
      {x, "%c: f32[] = Constant() {value=f32[](-0.5)}; %z: f32[2,3] = Pow(%x, %c); %z", "%z: f32[2,3] = Rsqrt(%x); %z"},
      {x, "%c: f32[] = Constant() {value=f32[](0.25)}; %z: f32[2,3] = Pow(%x, %c); %z",
       "%1: f32[2,3] = Sqrt(%x); %z: f32[2,3] = Sqrt(%1); %z"},
      {x, "%c: f32[] = Constant() {value=f32[](-0.75)}; %z: f32[2,3] = Pow(%x, %c); %z",
       "%1: f32[2,3] = Rsqrt(%x); %2: f32[2,3] = Sqrt(%1); %z: f32[2,3] = Mul(%1, %2); %z"},
      {x, "%c: f32[] = Constant() {value=f32[](-1.5)}; %z: f32[2,3] = Pow(%x, %c); %z",
       "%1: f32[2,3] = Rsqrt(%x); %z: f32[2,3] = Div(%1, %x); %z"},
      {x, "%c: f32[] = Constant() {value=f32[](3)}; %z: f32[2,3] = Pow(%x, %c); %z",
       "%c: f32[] = Constant() {value=f32[](3)}; %z: f32[2,3] = Pow(%x, %c); %z"},
      // Integers keep their divisions.
      {"feed %x: i64[2]",
       "%c: i64[] = Constant() {value=i64[](2)}; %a: i64[2] = Div(%x, %c); %z: i64[2] = Mul(%a, %c); %z",
       "%c: i64[] = Constant() {value=i64[](2)}; %a: i64[2] = Div(%x, %c); %z: i64[2] = Mul(%a, %c); %z"},
      {x,
       "%c: f32[] = Constant() {value=f32[](2)}; %d: f32[] = Constant() {value=f32[](8)}; %a: f32[2,3] = Mul(%c, %x); "
       "%z: f32[2,3] = Div(%a, %d); %z",
       "%2: f32[] = Constant() {value=f32[](0.25)}; %z: f32[2,3] = Mul(%x, %2); %z"},
      {x,
       "%c: f32[] = Constant() {value=f32[](2)}; %d: f32[] = Constant() {value=f32[](8)}; %a: f32[2,3] = Sub(%x, %c); "
       "%z: f32[2,3] = Add(%a, %d); %z",
       "%2: f32[] = Constant() {value=f32[](6)}; %z: f32[2,3] = Add(%x, %2); %z"},
      // Adding and taking away a large number rounds.
      {x, "%c: f32[] = Constant() {value=f32[](12582912)}; %a: f32[2,3] = Add(%x, %c); %z: f32[2,3] = Sub(%a, %c); %z",
       "%c: f32[] = Constant() {value=f32[](12582912)}; %a: f32[2,3] = Add(%x, %c); %z: f32[2,3] = Sub(%a, %c); %z"},
      {xy, "%c: bool[3] = Constant() {value=bool[3](splat 1)}; %z: f32[2,3] = Where(%c, %x, %y); %z", "%x \"z\""},
      {xy, "%c: bool[3] = Constant() {value=bool[3](splat 0)}; %z: f32[2,3] = Where(%c, %x, %y); %z", "%y \"z\""},
      {"feed %c: bool[3], feed %x: f32[2,3], feed %y: f32[2,3]",
       "%n: bool[3] = Not(%c); %z: f32[2,3] = Where(%n, %x, %y); %z", "%z: f32[2,3] = Where(%c, %y, %x); %z"},
      {x, "%z: f32[2,3] = Cast(%x) {to=\"f32\"}; %z", "%x \"z\""},
      {x, "%a: f64[2,3] = Cast(%x) {to=\"f64\"}; %z: f32[2,3] = Cast(%a) {to=\"f32\"}; %z", "%x \"z\""},
      {x, "%a: f16[2,3] = Cast(%x) {to=\"f16\"}; %z: f32[2,3] = Cast(%a) {to=\"f32\"}; %z",
       "%a: f16[2,3] = Cast(%x) {to=\"f16\"}; %z: f32[2,3] = Cast(%a) {to=\"f32\"}; %z"},
      {"feed %x: i32[2]", "%a: i64[2] = Cast(%x) {to=\"i64\"}; %z: f32[2] = Cast(%a) {to=\"f32\"}; %z",
       "%z: f32[2] = Cast(%x) {to=\"f32\"}; %z"},
      {"feed %x: i32[2]", "%a: f32[2] = Cast(%x) {to=\"f32\"}; %z: i32[2] = Cast(%a) {to=\"i32\"}; %z",
       "%a: f32[2] = Cast(%x) {to=\"f32\"}; %z: i32[2] = Cast(%a) {to=\"i32\"}; %z"},
  };
  for (const Case& c : kCases) Check(c, {kSimplify, kDce});
}

TEST(Simplify, Shapes) {
  constexpr std::string_view x = "feed %x: f32[2,3,4]";
  const Case kCases[] = {
      {x, "%a: f32[6,4] = Reshape(%x) {shape=[6, 4]}; %z: f32[24] = Reshape(%a) {shape=[24]}; %z",
       "%z: f32[24] = Reshape(%x) {shape=[24]}; %z"},
      {x, "%a: f32[6,4] = Reshape(%x) {shape=[6, 4]}; %z: f32[2,3,4] = Reshape(%a) {shape=[2, 3, 4]}; %z", "%x \"z\""},
      {x, "%z: f32[2,3,4] = Transpose(%x) {perm=[0, 1, 2]}; %z", "%x \"z\""},
      {x, "%a: f32[4,3,2] = Transpose(%x) {perm=[2, 1, 0]}; %z: f32[2,3,4] = Transpose(%a) {perm=[2, 1, 0]}; %z",
       "%x \"z\""},
      {x, "%a: f32[3,4,2] = Transpose(%x) {perm=[1, 2, 0]}; %z: f32[4,2,3] = Transpose(%a) {perm=[1, 2, 0]}; %z",
       "%z: f32[4,2,3] = Transpose(%x) {perm=[2, 0, 1]}; %z"},
      {x,
       "%a: f32[2,4,3] = Transpose(%x) {perm=[0, 2, 1]}; %z: i64[2,3] = ArgMax(%a) {axis=1, keepdims=0, "
       "select_last_index=0}; %z",
       "%z: i64[2,3] = ArgMax(%x) {axis=2, keepdims=0, select_last_index=0}; %z"},
      {"feed %x: f32[2,1,4]", "%z: f32[1,2,4] = Transpose(%x) {perm=[1, 0, 2]}; %z",
       "%z: f32[1,2,4] = Reshape(%x) {shape=[1, 2, 4]}; %z"},
      {"feed %q: f32[5,3,4], feed %k: f32[5,7,4]",
       "%t: f32[5,4,7] = Transpose(%k) {perm=[0, 2, 1]}; %z: f32[5,3,7] = MatMul(%q, %t) {trans_a=0, trans_b=0}; %z",
       "%z: f32[5,3,7] = MatMul(%q, %k) {trans_a=0, trans_b=1}; %z"},
      {"feed %q: f32[5,2,3,4], feed %k: f32[5,7,2,4]",
       "%t: f32[5,2,4,7] = Transpose(%k) {perm=[0, 2, 3, 1]}; %z: f32[5,2,3,7] = MatMul(%q, %t) {trans_a=0, "
       "trans_b=0}; %z",
       "%2: f32[5,2,7,4] = Transpose(%k) {perm=[0, 2, 1, 3]}; %z: f32[5,2,3,7] = MatMul(%q, %2) {trans_a=0, "
       "trans_b=1}; %z"},
      {"feed %x: f32[2,1]", "%z: f32[2] = ReduceSum(%x) {axes=[1], keepdims=0}; %z",
       "%z: f32[2] = Reshape(%x) {shape=[2]}; %z"},
      {"feed %x: f32[2,1]", "%z: f32[2,1] = ReduceMean(%x) {axes=[1], keepdims=1}; %z", "%x \"z\""},
      {x, "%z: f32[2,3,4] = Expand(%x) {shape=[2, 3, 4]}; %z", "%x \"z\""},
      {"feed %x: f32[3,1], feed %y: f32[2,3,4]",
       "%e: f32[2,3,4] = Expand(%x) {shape=[2, 3, 4]}; %z: f32[2,3,4] = Add(%e, %y); %z",
       "%z: f32[2,3,4] = Add(%x, %y); %z"},
      {"feed %x: f32[3]", "%e: f32[2,3] = Expand(%x) {shape=[2, 3]}; %z: f32[2,3] = Exp(%e); %z",
       "%1: f32[3] = Exp(%x); %z: f32[2,3] = Expand(%1) {shape=[2, 3]}; %z"},
      {"feed %x: f32[], feed %y: f32[]",
       "%e: f32[2,3] = Expand(%x) {shape=[2, 3]}; %r: f32[6] = Reshape(%e) {shape=[6]}; %z: f32[6] = Mul(%r, %y); %z",
       "%2: f32[] = Mul(%x, %y); %z: f32[6] = Expand(%2) {shape=[6]}; %z"},
      // This operator does not broadcast.
      {"feed %x: f32[], feed %t: f32[2]",
       "%e: f32[2] = Expand(%x) {shape=[2]}; %z: f32[2] = BinaryCrossEntropyWithLogits(%e, %t); %z",
       "%e: f32[2] = Expand(%x) {shape=[2]}; %z: f32[2] = BinaryCrossEntropyWithLogits(%e, %t); %z"},
      {"feed %x: f32[4]", "%z: f32[4] = Slice(%x) {sizes=[4], starts=[0], steps=[1]}; %z", "%x \"z\""},
      {"feed %x: f32[9]",
       "%a: f32[4] = Slice(%x) {sizes=[4], starts=[1], steps=[2]}; %z: f32[2] = Slice(%a) {sizes=[2], starts=[3], "
       "steps=[-2]}; %z",
       "%z: f32[2] = Slice(%x) {sizes=[2], starts=[7], steps=[-4]}; %z"},
      {"feed %x: f32[4]", "%z: f32[4] = Pad(%x) {pads=[0, 0], value=0.0}; %z", "%x \"z\""},
      {"feed %x: f32[4]", "%z: f32[4] = Split(%x) {axis=0, num_outputs=1, sizes=[4]}; %z", "%x \"z\""},
      {"feed %x: f32[2,1], feed %y: f32[2,2]",
       "%a: f32[2,3] = SliceGrad(%x) {input_shape=[2, 3], starts=[0, 2], steps=[1, 1]}; "
       "%b: f32[2,3] = SliceGrad(%y) {input_shape=[2, 3], starts=[0, 0], steps=[1, 1]}; %z: f32[2,3] = Add(%a, %b); %z",
       "%z: f32[2,3] = Concat(%y, %x) {axis=1}; %z"},
      {"feed %x: f32[2,1], feed %y: f32[2,1]",
       "%a: f32[2,3] = SliceGrad(%x) {input_shape=[2, 3], starts=[0, 2], steps=[1, 1]}; "
       "%b: f32[2,3] = SliceGrad(%y) {input_shape=[2, 3], starts=[0, 0], steps=[1, 1]}; %z: f32[2,3] = Add(%a, %b); %z",
       "%a: f32[2,3] = SliceGrad(%x) {input_shape=[2, 3], starts=[0, 2], steps=[1, 1]}; "
       "%b: f32[2,3] = SliceGrad(%y) {input_shape=[2, 3], starts=[0, 0], steps=[1, 1]}; %z: f32[2,3] = Add(%a, %b); "
       "%z"},
  };
  for (const Case& c : kCases) Check(c, {kSimplify, kDce});
}

TEST(Dce, KeepsWhatOutputsNeed) {
  const Graph graph =
      MustParse(GraphText("feed %x: f32[2], param %w: f32[2], param %v: f32[2], state %s: f32[2]",
                          "%a: f32[2] = Exp(%x); %b: f32[2] = Add(%x, %w); %c: f32[2] = Neg(%b); %b into %s"));
  EXPECT_EQ(Print(Dce(graph)), GraphText("feed %x: f32[2], param %w: f32[2], param %v: f32[2], state %s: f32[2]",
                                         "%b: f32[2] = Add(%x, %w); %b into %s"));
  EXPECT_EQ(Print(Dce(graph, {.drop_unused_weights = true})),
            GraphText("feed %x: f32[2], param %w: f32[2], state %s: f32[2]", "%b: f32[2] = Add(%x, %w); %b into %s"));
}

TEST(Cse, MergesWhatComputesTheSame) {
  constexpr std::string_view xy = "feed %x: f32[2], feed %y: f32[2]", key = "feed %x: f32[2], feed %k: u32[4]";
  const Case kCases[] = {
      {xy, "%a: f32[2] = Exp(%x); %b: f32[2] = Exp(%x); %z: f32[2] = Add(%a, %b); %z",
       "%a: f32[2] = Exp(%x); %z: f32[2] = Add(%a, %a); %z"},
      {xy, "%a: f32[2] = Add(%x, %y); %b: f32[2] = Add(%y, %x); %z: f32[2] = Mul(%a, %b); %z",
       "%a: f32[2] = Add(%x, %y); %z: f32[2] = Mul(%a, %a); %z"},
      {xy, "%a: f32[2] = Sub(%x, %y); %b: f32[2] = Sub(%y, %x); %z: f32[2] = Mul(%a, %b); %z",
       "%a: f32[2] = Sub(%x, %y); %b: f32[2] = Sub(%y, %x); %z: f32[2] = Mul(%a, %b); %z"},
      {xy,
       "%c: f32[] = Constant() {value=f32[](0)}; %d: f32[] = Constant() {value=f32[](-0)}; %a: f32[2] = Max(%x, %c); "
       "%b: f32[2] = Max(%x, %d); %a, %b",
       "%c: f32[] = Constant() {value=f32[](0)}; %d: f32[] = Constant() {value=f32[](-0)}; %a: f32[2] = Max(%x, %c); "
       "%b: f32[2] = Max(%x, %d); %a, %b"},
      {xy,
       "%c: f32[] = Constant() {value=f32[](2)}; %d: f32[] = Constant() {value=f32[](2)}; %a: f32[2] = Pow(%x, %c); "
       "%b: f32[2] = Pow(%x, %d); %a, %b",
       "%c: f32[] = Constant() {value=f32[](2)}; %a: f32[2] = Pow(%x, %c); %a, %a \"b\""},
      {xy, "%a: f32[2] = LeakyRelu(%x) {alpha=0.1}; %b: f32[2] = LeakyRelu(%x) {alpha=0.2}; %a, %b",
       "%a: f32[2] = LeakyRelu(%x) {alpha=0.1}; %b: f32[2] = LeakyRelu(%x) {alpha=0.2}; %a, %b"},
  };
  for (const Case& c : kCases) Check(c, {kCse, kDce});
  const Graph dropouts = MustParse(GraphText(
      key,
      "%a: f32[2] = Dropout(%x, %k) {ratio=0.5, stream=1}; %b: f32[2] = Dropout(%x, %k) {ratio=0.5, stream=1}; "
      "%c: f32[2] = Dropout(%x, %k) {ratio=0.5, stream=2}; %a, %b, %c"));
  const Pass passes[] = {kCse, kDce};
  EXPECT_EQ(
      Print(RunPasses(dropouts, passes).value()),
      GraphText(
          key,
          "%a: f32[2] = Dropout(%x, %k) {ratio=0.5, stream=1}; %c: f32[2] = Dropout(%x, %k) {ratio=0.5, stream=2}; "
          "%a, %a \"b\", %c"));
}

// The predicates decide whether the passes run.
TEST(Cse, EqualNodesAreFound) {
  const auto has = [](std::string_view body) {
    return HasEqualNodes(MustParse(GraphText("feed %x: f32[2], feed %y: f32[2]", body)));
  };
  EXPECT_TRUE(has("%a: f32[2] = Add(%x, %y); %b: f32[2] = Add(%y, %x); %a, %b"));
  EXPECT_FALSE(has("%a: f32[2] = Sub(%x, %y); %b: f32[2] = Sub(%y, %x); %a, %b"));
  EXPECT_FALSE(has("%a: f32[2] = LeakyRelu(%x) {alpha=0.1}; %b: f32[2] = LeakyRelu(%x) {alpha=0.2}; %a, %b"));
}

TEST(FoldConstants, FoldableNodesAreFound) {
  constexpr std::string_view c = "%c: f32[2] = Constant() {value=f32[2](1, 2)}; ";
  const auto has = [&](std::string_view body, size_t max_bytes = kMaxFoldedBytes) {
    return HasFoldableNodes(MustParse(GraphText("feed %x: f32[2]", StrCat(c, body))), max_bytes);
  };
  EXPECT_TRUE(has("%z: f32[2] = Exp(%c); %z"));
  EXPECT_FALSE(has("%z: f32[2] = Exp(%c); %z", 7));
  EXPECT_FALSE(has("%z: f32[2] = Add(%c, %x); %z"));
  EXPECT_FALSE(has("%z: f32[1000,2] = Expand(%c) {shape=[1000, 2]}; %z"));
}

TEST(FoldConstants, ComputesWhatIsKnown) {
  const Case kCases[] = {
      {"feed %x: f32[2]",
       "%c: f32[2] = Constant() {value=f32[2](1, 2)}; %d: f32[2] = Exp(%c); %e: f32[2] = Add(%d, %c); %z: f32[2] = "
       "Mul(%x, %e); %z",
       "%e: f32[2] = Constant() {value=f32[2](3.7182817, 9.389056)}; %z: f32[2] = Mul(%x, %e); %z"},
      {"feed %x: f32[64,64]",
       "%c: f32[] = Constant() {value=f32[](1)}; %e: f32[64,64] = Expand(%c) {shape=[64, 64]}; %e",
       "%c: f32[] = Constant() {value=f32[](1)}; %e: f32[64,64] = Expand(%c) {shape=[64, 64]}; %e"},
  };
  for (const Case& c : kCases) Check(c, {kFold, kDce});
}

TEST(RunPasses, NamesThePassThatBreaksTheGraph) {
  const Graph graph = MustParse(GraphText("feed %x: f32[2]", "%z: f32[2] = Exp(%x); %z"));
  const Pass breaks = {"breaks",
                       [](const Graph&) { return Parse(GraphText("feed %x: f32[2]", "%z: f32[3] = Exp(%x); %z")); }};
  const Pass fails = {"fails", [](const Graph&) -> absl::StatusOr<Graph> { return absl::InternalError("no"); }};
  EXPECT_EQ(RunPasses(graph, std::vector{breaks}).status().message(),
            "pass breaks: [Exp ''] output 0 has type f32[3], its row says f32[2]");
  EXPECT_EQ(RunPasses(graph, std::vector{fails}).status().message(), "pass fails: no");
  SetVerifyPasses(false);
  EXPECT_TRUE(RunPasses(graph, std::vector{breaks}).ok());
  SetVerifyPasses(true);
}

TEST(RunPasses, ReportsWhatChanged) {
  const Graph graph =
      MustParse(GraphText("feed %x: f32[2]", "%a: f32[2] = Neg(%x); %b: f32[2] = Neg(%a); %z: f32[2] = Exp(%b); %z"));
  std::string seen;
  const PassObserver observer = [&](const PassReport& r, const Graph& g) {
    StrAppend(&seen, r.pass, r.changed ? " changed " : " kept ", r.nodes_before, " ", r.nodes_after, "\n");
    EXPECT_EQ(r.nodes_after, g.nodes().size());
  };
  ASSERT_TRUE(RunToFixedPoint(graph, std::vector{kSimplify, kDce}, 10, observer).ok());
  EXPECT_EQ(seen, "simplify changed 3 2\ndce changed 2 1\nsimplify kept 1 1\ndce kept 1 1\n");
}

}  // namespace
}  // namespace onnxtrain
