#include "optim/loss.h"

#include <gtest/gtest.h>

#include "frontend/ops/builder.h"
#include "frontend/ops/check.h"

namespace onnxtrain {
namespace {

// A model whose only output is `tail` (or nothing) behind a product of the given sample shape.
ImportedModel ModelOf(const Shape& output, const std::string& tail) {
  ImportedModel model;
  Builder b(&model.graph);
  Val y = b.Input(InputKind::kFeed, "x", {DType::kFloat32, output}) * 2.0;
  if (tail == "Softmax" || tail == "LogSoftmax") y = b.Op(tail, {y}, {{"axis", int64_t{y.rank() - 1}}});
  if (tail == "Sigmoid") y = Sigmoid(y);
  model.graph.AddOutput("y", y.id());
  model.outputs = {"y"};
  return model;
}

struct Row {
  Shape output;
  std::string tail;
  Type label;
  int64_t max_label;
  std::string loss;  // expected name; "" where an error is expected
};

TEST(Loss, AutoChoice) {
  const Row rows[] = {
      {{4, 10}, "", {DType::kInt64, {}}, 9, "cross_entropy"},
      {{4, 10}, "", {DType::kInt64, {1}}, 9, "cross_entropy"},
      {{4, 10}, "Softmax", {DType::kInt64, {}}, 9, "cross_entropy"},
      {{4, 10}, "LogSoftmax", {DType::kInt64, {}}, 9, "cross_entropy"},
      {{4, 10}, "Softmax", {DType::kFloat32, {10}}, 0, "cross_entropy"},
      {{4, 7, 10}, "", {DType::kInt64, {7}}, 9, "cross_entropy"},
      {{4, 10, 7, 5}, "", {DType::kInt64, {7, 5}}, 9, "cross_entropy"},
      {{4, 1}, "", {DType::kInt64, {}}, 1, "bce"},
      {{4, 1}, "Sigmoid", {DType::kInt64, {}}, 1, "bce"},
      {{4, 5}, "Sigmoid", {DType::kFloat32, {5}}, 1, "bce"},
      {{4, 3}, "", {DType::kFloat32, {3}}, 0, "mse"},
      {{4, 1}, "", {DType::kFloat32, {}}, 0, "mse"},
      {{4, 3}, "", {DType::kFloat32, {4}}, 0, ""},
      {{4, 1}, "", {DType::kInt64, {}}, 7, ""},
  };
  for (const Row& row : rows) {
    const ImportedModel model = ModelOf(row.output, row.tail);
    const LabelInfo labels{.present = true, .sample = row.label, .max_value = row.max_label};
    const auto choice = ChooseLoss(model, {}, labels);
    EXPECT_EQ(choice.ok() ? choice->name : "", row.loss) << ToString(row.output) << " " << row.tail << " " << ToString(row.label) << " " << choice.status();
    if (!choice.ok()) continue;
    Graph graph = model.graph;
    const auto values = AttachLoss(&graph, *choice, {}, row.output[0]);
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_TRUE(Verify(graph).ok()) << Verify(graph);
    EXPECT_EQ(graph.type(values->loss_sum).shape, Shape{});
    EXPECT_EQ(graph.type(values->correct).shape, Shape{});
  }
}

TEST(Loss, SeveralOutputsAreAnErrorThatNamesThem) {
  ImportedModel model = ModelOf({4, 10}, "");
  model.graph.AddOutput("other", model.graph.FindOutput("y")->value);
  model.outputs.push_back("other");
  const LabelInfo labels{.present = true, .sample = {DType::kInt64, {}}, .max_value = 9};
  const auto choice = ChooseLoss(model, {}, labels);
  ASSERT_FALSE(choice.ok());
  EXPECT_NE(choice.status().message().find("'other'"), absl::string_view::npos);
  EXPECT_TRUE(ChooseLoss(model, {.logits = "other"}, labels).ok());
}

TEST(Loss, WindowWeightCountsTargets) {
  LossChoice classes{.kind = LossKind::kCrossEntropy, .num_classes = 10};
  EXPECT_EQ(WindowWeight(classes, {}, HostTensor::FromInts({1, -100, 3, -100}), 4), 2);
  LossChoice dense{.kind = LossKind::kMse};
  EXPECT_EQ(WindowWeight(dense, {}, HostTensor({DType::kFloat32, {4, 3}}), 4), 12);
  LossChoice soft{.kind = LossKind::kCrossEntropy};
  EXPECT_EQ(WindowWeight(soft, {}, HostTensor({DType::kFloat32, {4, 3}}), 4), 4);
}

}  // namespace
}  // namespace onnxtrain
