// The number of threads that a small model runs in.
#include "optim/plan/threads.h"

#include <gtest/gtest.h>

#include "frontend/ops/builder.h"

namespace onnxtrain {
namespace {

TEST(FewestFastThreads, AreAsFastAsAny) {
  EXPECT_EQ(FewestFastThreads({{1, 2.0}}), 1);
  EXPECT_EQ(FewestFastThreads({{1, 1.0}, {2, 1.5}}), 1);
  EXPECT_EQ(FewestFastThreads({{1, 1.04}, {2, 1.0}}), 1);
  EXPECT_EQ(FewestFastThreads({{1, 1.8}, {2, 1.0}}), 2);
  EXPECT_EQ(FewestFastThreads({{1, 4.0}, {2, 1.03}, {4, 1.0}, {6, 1.2}}), 2);
}

// `nodes` activations in a row, each of `elements` numbers.
Graph Activations(int nodes, int64_t elements) {
  Graph graph;
  Builder b(&graph);
  Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {elements}});
  for (int i = 0; i < nodes; ++i) x = b.Op("Tanh", {x});
  graph.AddOutput("y", x.id());
  return graph;
}

TEST(ThreadsByWork, IsOneWhereNoNodeIsLarge) {
  EXPECT_EQ(ThreadsByWork(Activations(10, 8)), 1);
  EXPECT_EQ(ThreadsByWork(Activations(40'000, 8)), 1);
  EXPECT_EQ(ThreadsByWork(Activations(2'000'000 / 8, 100)), 1);  // much work, but none to be shared
}

TEST(ThreadsByWork, IsAllWhereNodesAreLarge) {
  EXPECT_EQ(ThreadsByWork(Activations(10, 10'000'000)), 0);
  EXPECT_EQ(ThreadsByWork(Activations(10'000, 100'000)), 0);
}

TEST(ThreadsByWork, NeedsTimingInBetweenButNotOfManyNodes) {
  EXPECT_EQ(ThreadsByWork(Activations(50, 10'000)), std::nullopt);
  EXPECT_EQ(ThreadsByWork(Activations(3000, 10'000)), std::nullopt);
  EXPECT_EQ(ThreadsByWork(Activations(10'000, 10'000)), 1);
}

}  // namespace
}  // namespace onnxtrain
