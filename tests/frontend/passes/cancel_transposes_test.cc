// CancelTransposes: what goes, what stays, and the same numbers from both.
#include "frontend/passes/simplify.h"

#include <algorithm>

#include "frontend/passes/differentiate.h"
#include "frontend/passes/pipeline.h"
#include "tests/frontend/passes/testing.h"

namespace onnxtrain {
namespace {

int64_t CountNodes(const Graph& graph, std::string_view op) {
  return std::ranges::count_if(graph.nodes(), [&](const Node& n) { return n.op == op; });
}

struct Case {
  std::string_view what, inputs, body;
  int64_t left;  // transposes afterwards
};

// x is channels-last; what stands for a convolution wants channels first.
constexpr std::string_view kImage = "feed %x: f32[2,4,5,6], param %s: f32[6]";
constexpr std::string_view kFirst =
    "%t: f32[2,6,4,5] = Transpose(%x) {perm=[0, 3, 1, 2]}; "
    "%c: f32[2,6,4,5] = CumSum(%t) {axis=1, exclusive=0, reverse=0}; "
    "%b: f32[2,4,5,6] = Transpose(%c) {perm=[0, 2, 3, 1]}; ";
constexpr std::string_view kSecond =
    "%u: f32[2,6,4,5] = Transpose(%r) {perm=[0, 3, 1, 2]}; "
    "%y: f32[2,6,4,5] = CumSum(%u) {axis=1, exclusive=0, reverse=0}; %y";

TEST(CancelTransposes, BetweenConvolutions) {
  const std::pair<std::string_view, std::string_view> kBetween[] = {
      {"elementwise", "%r: f32[2,4,5,6] = Tanh(%b); "},
      {"a vector of channels", "%r: f32[2,4,5,6] = Mul(%b, %s); "},
      {"a number", "%k: f32[] = Constant() {value=f32[](2)}; %r: f32[2,4,5,6] = Add(%k, %b); "},
      {"twice the same", "%e: f32[2,4,5,6] = Exp(%b); %r: f32[2,4,5,6] = Sub(%e, %b); "},
      {"softmax over channels", "%r: f32[2,4,5,6] = Softmax(%b) {axis=3}; "},
      {"squeeze and excite",
       "%m: f32[2,1,1,6] = ReduceMean(%b) {axes=[1, 2], keepdims=1}; %g: f32[2,1,1,6] = Sigmoid(%m); %r: f32[2,4,5,6] "
       "= Mul(%b, %g); "},
      {"pad and slice",
       "%p: f32[2,6,7,6] = Pad(%b) {pads=[0, 1, 2, 0, 0, 1, 0, 0], value=0.0}; "
       "%r: f32[2,4,5,6] = Slice(%p) {starts=[0, 2, 1, 0], sizes=[2, 4, 5, 6], steps=[1, 1, 1, 1]}; "},
      {"concat and slice",
       "%p: f32[2,4,5,12] = Concat(%b, %b) {axis=3}; "
       "%r: f32[2,4,5,6] = Slice(%p) {starts=[0, 0, 0, 3], sizes=[2, 4, 5, 6], steps=[1, 1, 1, 1]}; "},
  };
  for (const auto& [what, between] : kBetween) {
    const Graph before = MustParse(GraphText(kImage, StrCat(kFirst, between, kSecond)));
    const auto after = CancelTransposes(before);
    ASSERT_TRUE(after.ok()) << what << after.status();
    EXPECT_EQ(CountNodes(*after, "Transpose"), 1) << what << "\n" << Print(*after);  // that of the model's input
    ExpectSameNumbers(before, *after);
  }
}

TEST(CancelTransposes, IntoAGlobalPool) {
  const Graph before =
      MustParse(GraphText(kImage, StrCat(kFirst, "%y: f32[2,6] = ReduceMean(%b) {axes=[1, 2], keepdims=0}; %y")));
  const auto after = CancelTransposes(before);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(CountNodes(*after, "Transpose"), 1) << Print(*after);
  ExpectSameNumbers(before, *after);
}

TEST(CancelTransposes, LeavesWhatWouldNotGetLess) {
  constexpr std::string_view kBodies[] = {
      // Nothing behind it undoes the first one.
      "%t: f32[2,3,4,5] = Transpose(%x) {perm=[0, 3, 1, 2]}; %a: f32[2,3,4,5] = Exp(%t); %y: f32[2,3,20] = Reshape(%a) "
      "{shape=[2, 3, 20]}; %y",
      // An operand that would have to be transposed instead.
      "%t: f32[2,3,4,5] = Transpose(%x) {perm=[0, 3, 1, 2]}; %y: f32[2,3,4,5] = Add(%t, %z); %y",
      // Heads of attention are no channels.
      "%t: f32[2,5,4,3] = Transpose(%x) {perm=[0, 2, 1, 3]}; %a: f32[2,5,4,3] = Exp(%t); %y: f32[2,4,5,3] = "
      "Transpose(%a) {perm=[0, 2, 1, 3]}; %y",
  };
  for (std::string_view body : kBodies) {
    const Graph before = MustParse(GraphText("feed %x: f32[2,4,5,3], feed %z: f32[2,3,4,5]", body));
    const auto after = CancelTransposes(before);
    ASSERT_TRUE(after.ok()) << after.status();
    EXPECT_EQ(Print(*after), Print(before));
  }
}

TEST(CancelTransposes, BackwardToo) {
  Graph joint = MustParse(GraphText(kImage, StrCat(kFirst, "%r: f32[2,4,5,6] = Mul(%b, %s); ", kSecond)));
  const ValueId y = joint.outputs()[0].value;
  std::vector<ValueId> wrt;
  for (const char* name : {"x", "s"}) wrt.push_back(joint.FindInput(name)->value);
  const auto gradients = Differentiate(&joint, y, wrt);
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  for (ValueId w : wrt) joint.AddOutput(StrCat("d", w), gradients->at(w));
  const auto after = CleanUp(joint);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(CountNodes(*after, "Transpose"), 2) << Print(*after);  // of the input and of its gradient
  ExpectSameNumbers(joint, *after, 1e-5);
}

}  // namespace
}  // namespace onnxtrain
