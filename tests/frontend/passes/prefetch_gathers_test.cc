#include "frontend/passes/collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "frontend/base/status.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/collective.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

using testing::ElementsAre;

constexpr size_t kBytes = 64;  // of a gathered weight

// x · w · u · v, with gathers of the first weights, and of computed values in between.
Graph Products(int weights) {
  Graph graph;
  Builder b(&graph);
  Val y = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {2, 4}});
  for (int i = 0; i < weights; ++i) {
    const Val columns = b.Input(InputKind::kState, StrCat("w", i), {DType::kFloat32, {2, 4}});
    y = b.Op("MatMul", {y, AllGather(columns, {.size = 2}, 0)});
  }
  graph.AddOutput("y", AllGather(y, {.size = 2}, 0).id());
  return graph;
}

std::vector<std::string> Ops(const Graph& graph) {
  std::vector<std::string> ops;
  for (const Node& node : graph.nodes()) {
    const bool begins = node.op == "AllGather" && node.attrs.Int("begins") != 0;
    ops.push_back(begins ? StrCat("Begin ", graph.inputs()[graph.value(node.inputs[0]).index].name) : node.op);
  }
  return ops;
}

TEST(PrefetchGathers, BeginsEachGatherBeforeTheReaderOfTheOneBefore) {
  const auto graph = PrefetchGathers(Products(3), 2 * kBytes);
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_TRUE(Verify(*graph).ok()) << Verify(*graph);
  EXPECT_THAT(Ops(*graph), ElementsAre("Begin w0", "Begin w1", "AwaitGather", "MatMul", "Begin w2", "AwaitGather",
                                       "MatMul", "AwaitGather", "MatMul", "AllGather"));
}

// Whatever the schedule: the token of a gather that begins goes to the wait for the one before.
TEST(PrefetchGathers, OrdersGathersByTheirTokens) {
  const Graph graph = PrefetchGathers(Products(3), 2 * kBytes).value();
  ValueId token = kNoValue;
  for (const Node& node : graph.nodes()) {
    if (node.op == "MatMul" || (node.op == "AllGather" && node.attrs.Int("begins") == 0)) continue;
    EXPECT_EQ(node.inputs.size() > 1 ? node.inputs[1] : kNoValue, token) << node.op;
    token = node.outputs[1];
  }
}

TEST(PrefetchGathers, HoldsNoMoreBytesThanItMay) {
  EXPECT_THAT(Ops(PrefetchGathers(Products(2), 2 * kBytes - 1).value()),
              ElementsAre("Begin w0", "AwaitGather", "MatMul", "Begin w1", "AwaitGather", "MatMul", "AllGather"));
}

TEST(PrefetchGathers, LeavesOneGatherBetweenItsBeginAndItsEnd) {
  EXPECT_THAT(Ops(PrefetchGathers(Products(1), 2 * kBytes).value()),
              ElementsAre("Begin w0", "AwaitGather", "MatMul", "AllGather"));
}

}  // namespace
}  // namespace onnxtrain
