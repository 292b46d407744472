// Forms that need no composite are counted.
#include "frontend/passes/recognize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "frontend/ops/formula.h"

namespace onnxtrain {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

class ElementwiseForms : public testing::Test {
 protected:
  Val Feed(const std::string& name, Shape shape = {2, 3, 4, 8}) {
    return b_.Input(InputKind::kFeed, name, {DType::kFloat32, std::move(shape)});
  }
  std::map<std::string, int> CountIn(Val y) {
    graph_.AddOutput("y", y.id());
    return CountElementwiseForms(graph_);
  }
  // x·cos + rotated·sin
  Val Turned(Val x, Val rotated) { return x * Feed("cos", {4, 8}) + rotated * Feed("sin", {4, 8}); }

  Graph graph_;
  Builder b_{&graph_};
};

TEST_F(ElementwiseForms, GatedUnits) {
  const Val x = Feed("x"), u = Feed("u");
  const Val swish = u * (Sigmoid(x) * x);
  EXPECT_THAT(CountIn(swish + b_.Op("Gelu", {x}, {{"approximate", std::string("tanh")}}) * u),
              ElementsAre(Pair("GeGlu", 1), Pair("SwiGlu", 1)));
}

TEST_F(ElementwiseForms, AnActivationAloneGatesNothing) {
  const Val x = Feed("x"), w = b_.Input(InputKind::kParameter, "w", {DType::kFloat32, {2, 3, 4, 8}});
  const Val swish = x * Sigmoid(x);
  EXPECT_THAT(CountIn(swish * w + swish * x + x * Sigmoid(w)), IsEmpty());
}

TEST_F(ElementwiseForms, RotatedHalves) {
  const Val x = Feed("x");
  EXPECT_THAT(CountIn(Turned(x, Concat({-Slice(x, 3, 4, 4), Slice(x, 3, 0, 4)}, 3))),
              ElementsAre(Pair("RotaryEmbedding", 1)));
}

TEST_F(ElementwiseForms, RotatedNeighbours) {
  const Val x = Feed("x"), pairs = Reshape(x, {2, 3, 4, 4, 2});
  const Val rotated = Concat({-Slice(pairs, 4, 1, 1), Slice(pairs, 4, 0, 1)}, 4);
  EXPECT_THAT(CountIn(Turned(x, Reshape(rotated, {2, 3, 4, 8}))), ElementsAre(Pair("RotaryEmbedding", 1)));
}

TEST_F(ElementwiseForms, OtherPartsAreNoRotation) {
  const Val x = Feed("x"), y = Feed("z");
  EXPECT_THAT(
      CountIn(Concat({Slice(x, 3, 4, 4), Slice(x, 3, 0, 4)}, 3) + Concat({-Slice(x, 3, 4, 4), Slice(y, 3, 0, 4)}, 3)),
      IsEmpty());
}

}  // namespace
}  // namespace onnxtrain
