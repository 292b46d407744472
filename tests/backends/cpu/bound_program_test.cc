#include "backends/bound_program.h"

#include "frontend/ops/builder.h"
#include "tests/backends/cpu/testing.h"

namespace onnxtrain {
namespace {

TEST(BoundProgram, RunsForTimingWithOneBufferForAllOutputs) {
  Graph graph;
  Builder b(&graph);
  const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {4, 8}}),
            w = b.Input(InputKind::kFeed, "w", {DType::kFloat32, {8, 64}});
  graph.AddOutput("product", MatMul(x, w).id());
  graph.AddOutput("exp", Exp(x).id());
  const Graph legal = *Cpu().Legalize(graph);
  auto timed = BoundProgram::MakeForTiming(Cpu(), legal);
  ASSERT_TRUE(timed.ok()) << timed.status().message();
  EXPECT_TRUE(timed->Run().ok());
  EXPECT_FALSE(timed->Get("product").ok());
}

}  // namespace
}  // namespace onnxtrain
