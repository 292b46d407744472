// GroupProducts: text in, operators and numbers out.
#include <algorithm>

#include "frontend/base/strings.h"
#include "frontend/passes/pipeline.h"
#include "frontend/passes/recognize.h"
#include "tests/frontend/passes/testing.h"

namespace onnxtrain {
namespace {

int64_t Count(const Graph& graph, std::string_view op) {
  return std::ranges::count_if(graph.nodes(), [&](const Node& node) { return node.op == op; });
}

// Checks the product of x with matrices of the stack W [4,5,6] that three indices choose.
void Check(std::string_view x, std::string_view nodes, bool grouped) {
  const std::string text = StrCat(
      "%ids: i64[3] = Constant() {value=i64[3](2, 0, 2)}; %g: f32[3,5,6] = Gather(%w, %ids) {axis=0}; ", nodes, "; %z");
  const Graph before = MustParse(GraphText(StrCat("feed %x: f32", x, ", param %w: f32[4,5,6]"), text));
  const auto after = Canonicalize(before);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(Count(*after, "GroupedMatMul"), grouped ? 1 : 0) << Print(*after);
  EXPECT_EQ(Count(*after, "Gather"), grouped ? 0 : 1) << Print(*after);
  ExpectSameNumbers(before, *after);
}

TEST(GroupProducts, RowsTimesChosenMatrices) {
  Check("[3,1,5]", "%z: f32[3,1,6] = MatMul(%x, %g)", true);
  Check("[3,1,6]", "%z: f32[3,1,5] = MatMul(%x, %g) {trans_b=1}", true);
  Check("[3,7,5]", "%z: f32[3,7,6] = MatMul(%x, %g)", true);
  Check("[3,5,1]", "%z: f32[3,1,6] = MatMul(%x, %g) {trans_a=1}", true);
}

TEST(GroupProducts, ChosenMatricesTimesColumns) {
  Check("[3,6,1]", "%z: f32[3,5,1] = MatMul(%g, %x)", true);
  Check("[3,5,1]", "%z: f32[3,6,1] = MatMul(%g, %x) {trans_a=1}", true);
}

TEST(GroupProducts, RepeatedRowsAreReadOnce) {
  const std::string_view text =
      "%ids: i64[4] = Constant() {value=i64[4](3, 0, 2, 1)}; %g: f32[4,5,6] = Gather(%w, %ids) {axis=0}; "
      "%a: f32[2,1,5] = Reshape(%x) {shape=[2, 1, 5]}; %e: f32[2,2,5] = Expand(%a) {shape=[2, 2, 5]}; "
      "%r: f32[4,1,5] = Reshape(%e) {shape=[4, 1, 5]}; %z: f32[4,1,6] = MatMul(%r, %g); %z";
  const Graph before = MustParse(GraphText("feed %x: f32[2,5], param %w: f32[4,5,6]", text));
  const auto after = Canonicalize(before);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(Count(*after, "GroupedMatMul"), 1) << Print(*after);
  EXPECT_EQ(Count(*after, "Expand"), 0) << Print(*after);
  ExpectSameNumbers(before, *after);
}

TEST(GroupProducts, OtherProductsStay) {
  Check("[7,5]", "%z: f32[3,7,6] = MatMul(%x, %g)", false);                // every matrix times all of x
  Check("[3,6,2]", "%z: f32[3,5,2] = MatMul(%g, %x)", false);              // several columns
  Check("[3,5,7]", "%z: f32[3,7,6] = MatMul(%x, %g) {trans_a=1}", false);  // columns of x are its rows
}

}  // namespace
}  // namespace onnxtrain
