// What the host evaluates of one graph is bounded.
#include "frontend/passes/simplify.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "frontend/ops/builder.h"
#include "frontend/passes/pipeline.h"

namespace onnxtrain {
namespace {

// Independent sines of one constant, their sum added to a feed.
Graph Sines(int count, int64_t elements) {
  Graph graph;
  Builder b(&graph);
  const Val constant = b.Constant(HostTensor({DType::kFloat32, {elements}}));
  Val sum = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {1}});
  for (int i = 0; i < count; ++i) sum = sum + ReduceSum(b.Op("Sin", {constant}), {0}, true);
  graph.AddOutput("y", sum.id());
  return graph;
}

int64_t Count(const Graph& graph, std::string_view op) { return std::ranges::count(graph.nodes(), op, &Node::op); }

TEST(HostBudgetTest, ComputationsOfShapesCostNothing) {
  const auto folded = FoldConstants(Sines(3000, 16));
  ASSERT_TRUE(folded.ok()) << folded.status();
  EXPECT_EQ(Count(*folded, "Sin"), 0);
  EXPECT_EQ(Count(*folded, "ReduceSum"), 0);
}

TEST(HostBudgetTest, EndsBeforeManyCheapNodesTakeLong) {
  constexpr int kCount = 5000;  // each takes a millisecond at most
  const auto folded = FoldConstants(Sines(kCount, 50'000));
  ASSERT_TRUE(folded.ok()) << folded.status();
  EXPECT_GT(Count(*folded, "Sin"), kCount / 2);
  EXPECT_LT(Count(*folded, "Sin"), kCount);
}

// Rounds of a pipeline do not renew it.
TEST(HostBudgetTest, IsSharedByAllRounds) {
  Graph graph;
  Builder b(&graph);
  Val constant = b.Constant(HostTensor({DType::kFloat32, {50'000}}));
  Val sum = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {1}});
  for (int i = 0; i < 5000; ++i) {
    constant = b.Op("Sin", {constant});
    sum = sum + ReduceSum(constant, {0}, true);
  }
  graph.AddOutput("y", sum.id());
  const auto clean = CleanUp(std::move(graph));
  ASSERT_TRUE(clean.ok()) << clean.status();
  EXPECT_GT(Count(*clean, "Sin"), 2500);
}

}  // namespace
}  // namespace onnxtrain
