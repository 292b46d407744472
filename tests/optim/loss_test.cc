// GCC 12: false positive on array elements whose construction may throw.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include "optim/step/loss.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "frontend/ops/builder.h"
#include "frontend/ops/row.h"
#include "frontend/passes/chunk_cross_entropy.h"
#include "frontend/passes/differentiate.h"
#include "optim/config/loss_text.h"
#include "optim/step/global_batch.h"
#include "optim/step/losses/loss_function.h"

namespace onnxtrain {
namespace {

// A model with one output: a product of this sample shape, followed by `tail` unless empty.
ImportedModel MakeModel(const Shape& output, const std::string& tail) {
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
  std::string loss;  // expected name; "": an error
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
      {{4, 1, 7, 5}, "", {DType::kUInt8, {7, 5}}, 1, "bce"},
      {{4, 3}, "", {DType::kFloat32, {3}}, 0, "mse"},
      {{4, 1}, "", {DType::kFloat32, {}}, 0, "mse"},
      {{4, 3}, "", {DType::kFloat32, {4}}, 0, ""},
      {{4, 1}, "", {DType::kInt64, {}}, 7, "mse"},
      {{4}, "", {DType::kInt64, {}}, 7, "mse"},
      {{4, 3}, "", {DType::kInt64, {3}}, 7, "mse"},
      {{4, 3}, "", {DType::kFloat64, {}}, 0, "cross_entropy"},
      {{4, 3}, "", {DType::kInt64, {4}}, 7, ""},
  };
  for (const Row& row : rows) {
    const ImportedModel model = MakeModel(row.output, row.tail);
    const LabelInfo labels{.present = true, .sample = row.label, .max_value = row.max_label};
    const auto choice = ChooseLoss(model, {}, labels);
    EXPECT_EQ(choice.ok() ? choice->name : "", row.loss)
        << ToString(row.output) << " " << row.tail << " " << ToString(row.label) << " " << choice.status();
    if (!choice.ok()) continue;
    Graph graph = model.graph;
    const auto values = AttachLoss(&graph, *choice, {}, row.output[0]);
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_TRUE(Verify(graph).ok()) << Verify(graph);
    EXPECT_EQ(graph.type(values->loss_sums[0]).shape, Shape{});
    EXPECT_EQ(graph.type(values->correct).shape, Shape{});
  }
}

LossParts ApplyCrossEntropy(Val y, Val labels) {
  const Options none;
  return FindLoss("cross_entropy")
      ->parts({.y = y,
               .labels = labels,
               .form = LabelForm::kClasses,
               .options = none,
               .ignore_index = -100,
               .label_smoothing = 0,
               .class_weights = {}});
}

// Language models for PyTorch's loss end in [N,T,C] → [N,C,T].
TEST(Loss, CrossEntropySkipsTheTransposeOfRows) {
  const auto scores = [](const std::vector<int64_t>& perm) {
    Graph graph;
    Builder b(&graph);
    const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {2, 5, 5, 10}});
    const Val labels = b.Input(InputKind::kFeed, "labels", {DType::kInt64, {2, 5, 5}});
    ApplyCrossEntropy(Transpose(x, perm), labels);
    EXPECT_TRUE(b.status().ok()) << b.status();
    const auto loss = std::ranges::find(graph.nodes(), "CrossEntropy", &Node::op);
    return graph.type(loss->inputs[0]).shape;
  };
  EXPECT_EQ(scores({0, 3, 1, 2}), (Shape{50, 10}));
  EXPECT_EQ(scores({0, 3, 2, 1}), (Shape{2, 10, 5, 5})) << "the labels have another order";
}

// x [2,5,3]·w → [2,5,10] → [2,10,5] → cross entropy: the head is divided into blocks, gradients included.
TEST(Loss, HeadOfATransposedLanguageModelIsChunked) {
  Graph graph;
  Builder b(&graph);
  const Val x = b.Input(InputKind::kParameter, "x", {DType::kFloat32, {2, 5, 3}});
  const Val w = b.Input(InputKind::kParameter, "w", {DType::kFloat32, {3, 10}});
  const Val labels = b.Input(InputKind::kFeed, "labels", {DType::kInt64, {2, 5}});
  const LossParts parts = ApplyCrossEntropy(Transpose(MatMul(x, w, false, false), {0, 2, 1}), labels);
  const Val loss = ReduceSum(parts.losses, {}, false);
  graph.AddOutput("loss", loss.id());
  graph.AddOutput("correct", parts.correct.id());
  const Val seed = b.Input(InputKind::kFeed, "seed", {DType::kFloat32, {}});
  const auto gradients = Differentiate(&graph, loss.id(), std::vector<ValueId>{x.id(), w.id()}, seed.id());
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  graph.AddOutput("dx", gradients->at(x.id()));
  graph.AddOutput("dw", gradients->at(w.id()));
  const auto chunked = ChunkCrossEntropy(graph, {.min_bytes = 0, .min_rows = 3, .max_blocks = 3, .row_multiple = 1});
  ASSERT_TRUE(chunked.ok()) << chunked.status();
  EXPECT_EQ(std::ranges::count(chunked->nodes(), "CrossEntropy", &Node::op), 3);
  EXPECT_EQ(std::ranges::count(chunked->nodes(), "CrossEntropyGrad", &Node::op), 3);
}

TEST(Loss, SeveralOutputsAreAnErrorThatNamesThem) {
  ImportedModel model = MakeModel({4, 10}, "");
  model.graph.AddOutput("other", model.graph.FindOutput("y")->value);
  model.outputs.emplace_back("other");
  const LabelInfo labels{.present = true, .sample = {DType::kInt64, {}}, .max_value = 9};
  const auto choice = ChooseLoss(model, {}, labels);
  ASSERT_FALSE(choice.ok());
  EXPECT_NE(choice.status().message().find("'other'"), absl::string_view::npos);
  EXPECT_TRUE(ChooseLoss(model, {.logits = "other"}, labels).ok());
}

TEST(Loss, OutputsThatNoWeightReachesAreNotChosen) {
  ImportedModel model = MakeModel({4, 10}, "");
  Builder b(&model.graph);
  const Val x = b.Wrap(model.graph.FindInput("x")->value);
  model.graph.AddOutput("logits", (x * b.Input(InputKind::kParameter, "w", {DType::kFloat32, {10}})).id());
  model.outputs.emplace_back("logits");
  const LabelInfo labels{.present = true, .sample = {DType::kInt64, {}}, .max_value = 9};
  const auto choice = ChooseLoss(model, {}, labels);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->terms[0].output, "logits");
}

TEST(Loss, NamesTheValueThatAnOutputReshapes) {
  ImportedModel model = MakeModel({4, 3}, "");
  const ValueId y = model.graph.FindOutput("y")->value;
  model.graph.ClearOutputs();
  model.graph.SetValueName(y, "scores");
  Builder b(&model.graph);
  model.graph.AddOutput("y", Reshape(Val(&b, y), {12, 1}).id());
  const auto choice = ChooseLoss(model, {}, {.present = true, .sample = {DType::kFloat32, {3}}});
  EXPECT_NE(choice.status().message().find("they fit 'scores' f32[4,3], which 'y' reshapes"), absl::string_view::npos)
      << choice.status();
}

// Without labels, which would tell, classes are along the channels of an image and else along the last axis.
TEST(Loss, ClassAxisWithoutLabels) {
  const auto label = [](const ImportedModel& model, const std::string& loss) -> std::string {
    const auto choice = ChooseLoss(model, {.name = loss}, {});
    return choice.ok() ? ToString(choice->feeds[0].sample.shape) : "none";
  };
  const ImportedModel values = MakeModel({4, 10, 7, 5}, "");
  EXPECT_EQ(label(values, "ce"), ToString(Shape{10, 7}));
  EXPECT_EQ(label(values, "ce:axis=-1"), ToString(Shape{10, 7}));
  EXPECT_EQ(label(values, "ce:axis=1"), ToString(Shape{7, 5}));
  EXPECT_EQ(label(values, "nll:axis=3"), ToString(Shape{10, 7}));
  EXPECT_EQ(label(values, "ce:axis=2"), "none");
  ImportedModel image;
  Builder b(&image.graph);
  const Val x = b.Input(InputKind::kFeed, "x", {DType::kFloat32, {4, 3, 7, 5}}),
            w = b.Input(InputKind::kParameter, "w", {DType::kFloat32, {10, 3, 1, 1}});
  const Val y = b.Op("Conv", {x, w},
                     {{"strides", std::vector<int64_t>{1, 1}},
                      {"pads", std::vector<int64_t>{0, 0, 0, 0}},
                      {"dilations", std::vector<int64_t>{1, 1}},
                      {"group", int64_t{1}}});
  image.graph.AddOutput("y", (y * 2.0).id());
  image.outputs = {"y"};
  EXPECT_EQ(label(image, "ce"), ToString(Shape{7, 5}));
  EXPECT_EQ(label(image, "ce:axis=-1"), ToString(Shape{10, 7}));
  const LabelInfo last{.present = true, .sample = {DType::kInt64, {10, 7}}, .max_value = 4};
  EXPECT_FALSE(ChooseLoss(image, {.name = "ce:axis=1"}, last).ok());
}

TEST(Loss, LossDenominatorCountsTargets) {
  const auto weight = [](const char* loss, LabelForm form, HostTensor labels) {
    const LossChoice choice{.terms = {{.function = FindLoss(loss), .form = form, .feed = kLabelFeed}}};
    const LossSpec spec;
    LossDenominators counted(choice, spec);
    EXPECT_TRUE(counted.Count({{kLabelFeed, std::move(labels)}}, 4).ok());
    return counted.weights()[0];
  };
  EXPECT_EQ(weight("ce", LabelForm::kClasses, HostTensor::FromInts({1, -100, 3, -100})), 2);
  EXPECT_EQ(weight("mse", LabelForm::kElements, HostTensor({DType::kFloat32, {4, 3}})), 12);
  EXPECT_EQ(weight("ce", LabelForm::kDistribution, HostTensor({DType::kFloat32, {4, 3}})), 4);
  EXPECT_EQ(weight("dice", LabelForm::kElements, HostTensor({DType::kFloat32, {4, 3}})), 4);
  EXPECT_EQ(weight("output", LabelForm::kNone, HostTensor()), 4);
}

TEST(Loss, TermsAreRead) {
  const auto terms = ParseLoss("ce@digit+0.5*huber:delta=2,label=a/b@layer/out:0+2e-1*output:aux");
  ASSERT_TRUE(terms.ok()) << terms.status();
  ASSERT_EQ(terms->size(), 3);
  EXPECT_EQ((*terms)[0].function->name, "cross_entropy");
  EXPECT_EQ((*terms)[0].output, "digit");
  EXPECT_EQ((*terms)[1].factor, 0.5);
  EXPECT_EQ((*terms)[1].options.at("delta")[0], 2);
  EXPECT_EQ((*terms)[1].label, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ((*terms)[1].output, "layer/out:0");
  EXPECT_EQ((*terms)[2].factor, 0.2);
  EXPECT_EQ((*terms)[2].output, "aux");
}

TEST(Loss, FilesAreTerms) {
  const auto alone = ParseLoss("onnx:a+b");
  ASSERT_TRUE(alone.ok()) << alone.status();
  ASSERT_EQ(alone->size(), 1);
  EXPECT_EQ((*alone)[0].file, "a+b") << "a file's name may have a +";
  const auto sum = ParseLoss("ce@kind+2*onnx:d+e/f.onnx+onnx:g.onnx+l1");
  ASSERT_TRUE(sum.ok()) << sum.status();
  ASSERT_EQ(sum->size(), 4);
  EXPECT_EQ((*sum)[1].file, "d+e/f.onnx");
  EXPECT_EQ((*sum)[1].factor, 2);
  EXPECT_EQ((*sum)[2].file, "g.onnx");
  EXPECT_EQ((*sum)[3].function->name, "l1");
}

TEST(Loss, RefusesWhatItCannotRead) {
  const std::pair<const char*, const char*> rows[] = {
      {"cross", "`loss` cross: unknown; known are auto, cross_entropy"},
      {"bce_with_logits", "onnx:FILE; bce_with_logits is bce here, which is computed on logits, also where the model"},
      {"SmoothL1Loss", "onnx:FILE; SmoothL1Loss is huber here"},
      {"ce+", "`loss` : unknown"},
      {"0*ce", "expected a factor above 0 before *, got '0'"},
      {"x*ce", "got 'x'"},
      {"focal:gama=2", "has no option 'gama'; it has gamma, alpha"},
      {"focal:gamma=-1", "expected 0 to 100, got '-1'"},
      {"ce@", "expected an output's name behind @"},
      {"output:", "expected output:NAME"},
      {"output", "unknown"},
      {"ce:label=", "expected COLUMN"},
      {"auto:gamma=2", "auto has no options"},
      {"ce+onnx:", "expected onnx:FILE"},
  };
  for (const auto& [text, part] : rows) {
    const auto terms = ParseLoss(text);
    ASSERT_FALSE(terms.ok()) << text;
    EXPECT_NE(std::string(terms.status().message()).find(part), std::string::npos) << text << ": " << terms.status();
  }
}

TEST(Loss, TermsShareFeedsOfTheSameLabels) {
  const ImportedModel model = MakeModel({4, 10}, "");
  const LabelInfo labels{.present = true, .sample = {DType::kInt64, {}}, .max_value = 9};
  const auto choice = ChooseLoss(model, {.name = "dice+2*ce"}, labels);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->feeds.size(), 1);
  EXPECT_EQ(choice->lead, 1);
  EXPECT_TRUE(choice->classes);
  EXPECT_EQ(choice->num_classes(), 10);
  EXPECT_EQ(choice->name, "dice+2*ce");
  EXPECT_FALSE(ChooseLoss(model, {.name = "ce+mse"}, labels).ok());
  const LabelInfo dense{.present = true, .sample = {DType::kFloat32, {10}}};
  const auto two = ChooseLoss(model, {.name = "ce+mse:label=t", .own_labels = {{"t", dense}}}, labels);
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->feeds.size(), 2);
  EXPECT_EQ(two->terms[1].feed, "$label:1");
}

}  // namespace
}  // namespace onnxtrain
