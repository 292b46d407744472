#include "optim/step/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "frontend/ops/builder.h"

namespace onnxtrain {
namespace {

using ::testing::ElementsAre;

// A chain of nodes that read the weights in order.
PreparedModel Chain(const std::vector<WeightDecision>& weights) {
  PreparedModel prepared;
  Builder b(&prepared.model.graph);
  Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {2}});
  for (const WeightDecision& w : weights) x = x + ReduceSum(b.Input(InputKind::kParameter, w.name, w.type), {}, false);
  prepared.model.graph.AddOutput("y", x.id());
  prepared.weights = {weights.rbegin(), weights.rend()};  // file order must not matter
  return prepared;
}

WeightDecision Weight(const std::string& name, int rank, const std::string& consumer = "") {
  return {.name = name, .type = {DType::kFloat32, Shape(rank, 2)}, .consumer = consumer, .trained = true};
}

std::vector<std::string> Names(const std::vector<Layer>& layers) {
  std::vector<std::string> names;
  for (const Layer& layer : layers) names.push_back(layer.name);
  return names;
}

TEST(Layers, BlocksOfATransformer) {
  const PreparedModel model = Chain({Weight("bert.embeddings.word.weight", 2), Weight("bert.embeddings.norm.weight", 1),
                                     Weight("bert.encoder.layer.0.query.weight", 2),
                                     Weight("onnx::MatMul_7", 2, "MatMul /bert/encoder/layer.0/key/MatMul"),
                                     Weight("bert.encoder.layer.1.query.weight", 2), Weight("classifier.weight", 2),
                                     Weight("classifier.bias", 1)});
  const auto layers = ListLayers(model);
  EXPECT_THAT(Names(layers),
              ElementsAre("bert.embeddings", "bert.encoder.layer.0", "bert.encoder.layer.1", "classifier"));
  EXPECT_THAT(layers[0].weights, ElementsAre("bert.embeddings.word.weight", "bert.embeddings.norm.weight"));
  EXPECT_THAT(layers[1].weights, ElementsAre("bert.encoder.layer.0.query.weight", "onnx::MatMul_7"));
  EXPECT_THAT(layers[3].weights, ElementsAre("classifier.weight", "classifier.bias"));
}

TEST(Layers, NormsBelongToWhatIsBeforeThem) {
  const PreparedModel model =
      Chain({Weight("conv1.weight", 4), Weight("bn1.weight", 1), Weight("layer1.0.conv1.weight", 4),
             Weight("layer1.0.bn1.weight", 1), Weight("layer1.1.conv1.weight", 4), Weight("fc.weight", 2)});
  EXPECT_THAT(Names(ListLayers(model)), ElementsAre("conv1", "layer1.0", "layer1.1", "fc"));
}

TEST(Layers, WithoutModulesByNode) {
  const PreparedModel model =
      Chain({Weight("w1", 2, "Gemm a"), Weight("b1", 1, "Gemm a"), Weight("w2", 2, "Gemm b"), Weight("w3", 2)});
  const auto layers = ListLayers(model);
  EXPECT_THAT(Names(layers), ElementsAre("a", "b", "w3"));
  EXPECT_THAT(layers[0].weights, ElementsAre("w1", "b1"));
}

// Embeddings and output layers, also where a scale, a bias and a shape follow the product; not the matrices between.
TEST(Tables, EmbeddingsAndOutputLayers) {
  ImportedModel model;
  Builder b(&model.graph);
  const auto weight = [&](const char* name, Shape shape) {
    return b.Input(InputKind::kParameter, name, {DType::kFloat32, std::move(shape)});
  };
  const Val ids = b.Input(InputKind::kFeed, "ids", {DType::kInt64, {5}});
  const Val x = Tanh(MatMul(Gather(weight("embedding", {9, 4}), ids, 0), weight("hidden", {4, 4})));
  const Val logits = MatMul(x, weight("head", {4, 9})) * 0.5 + weight("bias", {1, 9});
  model.graph.AddOutput("y", Reshape(logits, {1, 5, 9}).id());
  model.outputs = {"y"};
  EXPECT_THAT(FindTables(model), ElementsAre("embedding", "head"));
}

}  // namespace
}  // namespace onnxtrain
