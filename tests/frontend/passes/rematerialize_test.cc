#include "frontend/passes/rematerialize.h"

#include <algorithm>

#include "frontend/ops/builder.h"
#include "frontend/ops/row.h"
#include "frontend/passes/min_cut.h"
#include "tests/frontend/passes/testing.h"

namespace onnxtrain {
namespace {

TEST(MinCut, SeparatesAtTheCheapestEdges) {
  // 0 → {1, 2} → 3, with a bridge from 1 to 2.
  MinCut cut(4);
  cut.AddEdge(0, 1, 3);
  cut.AddEdge(0, 2, 2);
  cut.AddEdge(1, 2, 5);
  cut.AddEdge(1, 3, 2);
  cut.AddEdge(2, 3, 9);
  EXPECT_EQ(cut.SourceSide(0, 3), (std::vector<bool>{true, false, false, false}));
  MinCut other(3);
  other.AddEdge(0, 1, MinCut::kUncuttable);
  other.AddEdge(1, 2, 7);
  EXPECT_EQ(other.SourceSide(0, 2), (std::vector<bool>{true, true, false}));
}

// x → a → b (a view of it) → c, and a backward pass that reads b and c; the seed is read by the first node of it.
Graph Joint() {
  Graph g;
  Builder b(&g);
  const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {2, 3}});
  const Val a = Exp(x), v = Reshape(a, {6}), c = Tanh(v);
  const Val seed = b.Input(InputKind::kFeed, "seed", {DType::kFloat32, {}});
  const Val first = seed * c, second = first * v;
  g.AddOutput("y", second.id());
  EXPECT_TRUE(b.status().ok());
  return g;
}

int Count(const Graph& g, std::string_view op) {
  return static_cast<int>(std::count_if(g.nodes().begin(), g.nodes().end(), [&](const Node& n) { return n.op == op; }));
}

// Returns the first node that depends on the seed; the number of nodes if none does.
int32_t FindBoundary(const Graph& g) {
  const std::vector<bool> backward = DependsOn(g, "seed");
  return static_cast<int32_t>(std::ranges::find(backward, true) - backward.begin());
}

TEST(Rematerialize, BackwardReadsClones) {
  const Graph g = Joint();
  const int32_t boundary = FindBoundary(g);
  EXPECT_EQ(g.nodes()[boundary].op, "Mul");
  const std::vector<Clones> all(boundary, Clones::Once());
  const Rematerialized made = Rematerialize(g, boundary, all);
  EXPECT_EQ(Count(made.graph, "Exp"), 2);
  EXPECT_EQ(Count(made.graph, "Reshape"), 2);  // a view goes with its node
  EXPECT_EQ(Count(made.graph, "Tanh"), 2);
  EXPECT_EQ(Count(made.graph, "Mul"), 2);
  EXPECT_EQ(made.origin.size(), made.graph.nodes().size());
  ExpectSameNumbers(g, made.graph, 0);
  // No original's result is read in the backward pass.
  std::vector<bool> cloned(made.graph.nodes().size(), false);
  std::vector<bool> seen(g.nodes().size(), false);
  for (size_t n = 0; n < cloned.size(); ++n) {
    cloned[n] = seen[made.origin[n]];
    seen[made.origin[n]] = true;
  }
  for (const Node& node : made.graph.nodes()) {
    if (node.op != "Mul") continue;
    for (ValueId v : node.inputs) {
      const int32_t p = made.graph.value(v).node;
      if (p >= 0 && made.graph.nodes()[p].op != "Mul") {
        EXPECT_TRUE(cloned[p]) << Print(made.graph);
      }
    }
  }
}

// x → a → b, and a backward pass that reads a and b early, a again late.
TEST(Rematerialize, AClonePerStretchOfTheBackwardPass) {
  Graph g;
  Builder b(&g);
  const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {2, 3}});
  const Val a = Exp(x), c = Tanh(a);
  const Val seed = b.Input(InputKind::kFeed, "seed", {DType::kFloat32, {}});
  const Val first = seed * c, second = first * a, third = second * a, view = Reshape(a, {3, 2});
  g.AddOutput("y", (Reshape(third, {3, 2}) * view).id());
  ASSERT_TRUE(b.status().ok());
  const int32_t boundary = FindBoundary(g);
  std::vector<Clones> again(boundary);
  ASSERT_TRUE(again[0].Add(boundary + 2) && again[0].Add(boundary + 1));
  EXPECT_FALSE(again[0].Add(boundary + 2));
  EXPECT_EQ(again[0].count(), 2u);
  EXPECT_EQ(again[0].At(boundary), 0u);
  EXPECT_EQ(again[0].At(boundary + 1), 1u);
  EXPECT_EQ(again[0].At(boundary + 9), 2u);
  const Rematerialized made = Rematerialize(g, boundary, again);
  EXPECT_EQ(Count(made.graph, "Exp"), 3) << Print(made.graph);
  ExpectSameNumbers(g, made.graph, 0);
  again[0].Remove(boundary + 1);
  EXPECT_EQ(Count(Rematerialize(g, boundary, again).graph, "Exp"), 2);
}

TEST(Rematerialize, SideResultsAreKeptAndRepeatFromThem) {
  static const OpRow rows[] = {{.name = "test.Norm", .outputs = 2},
                               {.name = "test.NormRecompute", .inputs = {2, 2}},
                               {.name = "test.NormGrad", .inputs = {4, 4}}};
  RegisterOps(rows);
  Graph g;
  const Type wide = {DType::kFloat32, {64, 4}}, narrow = {DType::kFloat32, {4}};
  const ValueId x = g.AddInput(InputKind::kFeed, "x", wide), seed = g.AddInput(InputKind::kFeed, "seed", wide);
  const ValueIds y = g.AddNode("test.Norm", {x}, {}, {wide, narrow}).outputs;
  g.AddOutput("dx", g.AddNode("test.NormGrad", {seed, x, y[0], y[1]}, {}, {wide}).outputs[0]);
  EXPECT_FALSE(IsSideOutput(g, y[0]));
  EXPECT_TRUE(IsSideOutput(g, y[1]));
  const Rematerialized made = Rematerialize(g, 1, {Clones::Once()});
  ASSERT_EQ(made.graph.nodes().size(), 3u) << Print(made.graph);
  const Node &norm = made.graph.nodes()[0], &repeat = made.graph.nodes()[1], &grad = made.graph.nodes()[2];
  EXPECT_EQ(repeat.op, "test.NormRecompute");
  EXPECT_EQ(repeat.inputs, (ValueIds{norm.inputs[0], norm.outputs[1]}));
  EXPECT_EQ(grad.inputs[2], repeat.outputs[0]);
  EXPECT_EQ(grad.inputs[3], norm.outputs[1]);
}

TEST(Rematerialize, NothingMarkedNothingCloned) {
  const Graph g = Joint();
  const Rematerialized made = Rematerialize(g, FindBoundary(g), {});
  EXPECT_EQ(made.graph.nodes().size(), g.nodes().size());
  for (size_t n = 0; n < made.origin.size(); ++n) EXPECT_EQ(made.origin[n], static_cast<int32_t>(n));
  ExpectSameNumbers(g, made.graph, 0);
  EXPECT_EQ(std::ranges::count(DependsOn(g, "nothing"), true), 0);
}

}  // namespace
}  // namespace onnxtrain
