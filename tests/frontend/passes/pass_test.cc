// The driver of passes.
#include "frontend/passes/pass.h"

#include <gtest/gtest.h>

#include "frontend/passes/eliminate.h"

namespace onnxtrain {
namespace {

const Type kScalar = {DType::kFloat32, {}};

Graph Activations(int count) {
  Graph graph;
  ValueId v = graph.AddInput(InputKind::kFeed, "x", kScalar);
  for (int i = 0; i < count; ++i) v = graph.AddNode("Tanh", {v}, {}, {kScalar}).outputs[0];
  graph.AddOutput("y", v);
  return graph;
}

// A pass that takes one node away while there are more than `left`, and counts its runs.
Pass Shorten(int left, int* runs) {
  return {"shorten", [=](const Graph& graph) -> absl::StatusOr<Graph> {
            ++*runs;
            const auto nodes = static_cast<int>(graph.nodes().size());
            return Activations(nodes > left ? nodes - 1 : nodes);
          }};
}

TEST(RunToFixedPointTest, EndsAfterOneRunOfEachPassThatChangesNothing) {
  int runs[3] = {};
  const Pass passes[] = {Shorten(3, &runs[0]), Shorten(5, &runs[1]), Shorten(5, &runs[2])};
  const auto result = RunToFixedPoint(Activations(4), passes);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->nodes().size(), 3u);
  EXPECT_EQ(runs[0], 2);  // once more than the others: its own result is new to it
  EXPECT_EQ(runs[1], 1);
  EXPECT_EQ(runs[2], 1);
}

TEST(RunToFixedPointTest, EndsAfterSoManyRounds) {
  int runs[2] = {};
  const Pass passes[] = {Shorten(0, &runs[0]), Shorten(0, &runs[1])};
  const auto result = RunToFixedPoint(Activations(100), passes, 7);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->nodes().size(), 86u);
}

TEST(RunToFixedPointTest, CleanPassesRunOnlyAfterAChange) {
  for (const int left : {3, 4}) {
    int runs[2] = {};
    const Pass passes[] = {Shorten(left, &runs[0]), Shorten(9, &runs[1])};
    ASSERT_TRUE(RunToFixedPoint(Activations(4), passes, 10, nullptr, 1).ok());
    EXPECT_EQ(runs[0], left == 3 ? 2 : 1);
    EXPECT_EQ(runs[1], left == 3 ? 1 : 0);
  }
}

TEST(PassTest, IsSkippedWhereItCannotChangeTheGraph) {
  int runs = 0;
  Pass pass = Shorten(0, &runs);
  pass.may_change = AnyNodeOf("Relu");
  int reports = 0;
  const auto observer = [&](const PassReport& report, const Graph&) {
    ++reports;
    EXPECT_FALSE(report.changed);
    EXPECT_EQ(report.nodes_after, 4u);
  };
  const auto result = RunPasses(Activations(4), {&pass, 1}, observer);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->nodes().size(), 4u);
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(reports, 1);
  pass.may_change = AnyNodeOf("Tanh");
  EXPECT_EQ(RunPasses(Activations(4), {&pass, 1})->nodes().size(), 3u);
}

TEST(PassTest, DeadCodeIsLookedForAtNoCost) {
  const Pass dce = DcePass();
  Graph graph = Activations(2);
  EXPECT_FALSE(dce.may_change(graph));
  graph.AddNode("Tanh", {0}, {}, {kScalar});
  EXPECT_TRUE(dce.may_change(graph));
  EXPECT_EQ(RunPasses(graph, {&dce, 1})->nodes().size(), 2u);
}

}  // namespace
}  // namespace onnxtrain
