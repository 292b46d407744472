#include "frontend/passes/collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "frontend/ops/builder.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

using testing::ElementsAre;

constexpr DType kF32 = DType::kFloat32;

// Weights of 16 elements, of which each of two ranks has 8.
class Divided {
 public:
  Divided() : b_(&graph_), x_(b_.Input(InputKind::kFeed, "x", {kF32, {2, 4}})) {}

  Val Weight(const std::string& name, int64_t extent = 4) {
    options_.weights[name] = {name + " columns", {kF32, {1, 8}}};
    return b_.Input(InputKind::kParameter, name, {kF32, {4, extent}});
  }
  Val x() const { return x_; }
  Val Product(Val a, Val w) { return b_.Op("MatMul", {a, w}); }

  Graph Gathered(Val y, size_t keep) {
    graph_.AddOutput("y", y.id());
    options_.group.size = 2;
    options_.keep = keep;
    const auto result = GatherWeights(graph_, options_);
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(Verify(*result).ok()) << Verify(*result);
    return *result;
  }

 private:
  Graph graph_;
  Builder b_;
  Val x_;
  GatherWeightsOptions options_;
};

// Without reshapes.
std::vector<std::string> Ops(const Graph& graph) {
  std::vector<std::string> ops;
  for (const Node& node : graph.nodes()) {
    if (node.op != "Reshape") ops.push_back(node.op);
  }
  return ops;
}

TEST(GatherWeights, AFarReaderOfATiedWeightGathersItAgain) {
  for (const size_t keep : {0, 64}) {
    Divided d;
    const Val w = d.Weight("w"), u = d.Weight("u");
    const Graph graph = d.Gathered(d.Product(d.Product(d.Product(d.x(), w), u), w), keep);
    EXPECT_EQ(graph.FindInput("w"), nullptr);
    ASSERT_NE(graph.FindInput("w columns"), nullptr);
    EXPECT_EQ(graph.FindInput("w columns")->kind, InputKind::kState);
    if (keep == 0) {
      EXPECT_THAT(Ops(graph), ElementsAre("AllGather", "MatMul", "AllGather", "MatMul", "AllGather", "MatMul"));
    } else {
      EXPECT_THAT(Ops(graph), ElementsAre("AllGather", "MatMul", "AllGather", "MatMul", "MatMul"));
    }
  }
}

TEST(GatherWeights, TransposesAreComputedWithEachGather) {
  Divided d;
  const Val w = d.Weight("w"), u = d.Weight("u"), across = Transpose(w, {1, 0});
  const Val y = d.Product(d.Product(d.Product(d.x().b().Op("Relu", {d.x()}), across), u), across);
  EXPECT_THAT(Ops(d.Gathered(y, 0)), ElementsAre("Relu", "AllGather", "Transpose", "MatMul", "AllGather", "MatMul",
                                                 "AllGather", "Transpose", "MatMul"));
}

TEST(GatherWeights, PaddingOfTheLastRankIsCutOff) {
  Divided d;
  EXPECT_THAT(Ops(d.Gathered(d.Product(d.x(), d.Weight("w", 3)), 0)), ElementsAre("AllGather", "Slice", "MatMul"));
}

}  // namespace
}  // namespace onnxtrain
