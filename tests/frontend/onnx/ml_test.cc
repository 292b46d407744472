// Tests weights in attributes of ai.onnx.ml, logits of classifiers, and ai.onnx.preview.training.Gradient.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "frontend/onnx/edit/chosen_scores.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/write/export.h"
#include "frontend/ops/host_eval.h"
#include "model_builder.h"

namespace onnxtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void SetFloats(onnx::NodeProto* node, const std::string& name, const std::vector<float>& values) {
  auto* attribute = node->add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::FLOATS);
  for (float v : values) attribute->add_floats(v);
}

// The export of scikit-learn's logistic regression: labels, and a list of dictionaries of normalized sigmoids.
onnx::ModelProto Classifier(bool named) {
  onnx::ModelProto model = NewModel();
  auto* opset = model.add_opset_import();
  opset->set_domain("ai.onnx.ml");
  opset->set_version(1);
  AddInput(&model, "x", {1, 2});
  auto* linear = AddNode(&model, "LinearClassifier", {"x"}, {"label", "raw"});
  SetFloats(linear, "coefficients", {1, 2, 3, 4, 5, 6});
  SetFloats(linear, "intercepts", {.1f, .2f, .3f});
  SetString(linear, "post_transform", "LOGISTIC");
  if (named) SetStrings(linear, "classlabels_strings", {"a", "b", "c"});
  auto* normalizer = AddNode(&model, "Normalizer", {"raw"}, {"probabilities"});
  SetString(normalizer, "norm", "L1");
  auto* zip = AddNode(&model, "ZipMap", {"probabilities"}, {"table"});
  for (auto* node : {linear, normalizer, zip}) node->set_domain("ai.onnx.ml");
  AddOutput(&model, "label");
  AddOutput(&model, "table");
  model.mutable_graph()->mutable_output(0)->mutable_type()->mutable_tensor_type()->set_elem_type(
      named ? onnx::TensorProto::STRING : onnx::TensorProto::INT64);
  return model;
}

TEST(LinearModels, WeightsStandInAttributesAndGoBackThere) {
  const std::string source = Save(Classifier(false));
  auto model = OnnxModel::Load(source);
  ASSERT_TRUE(model.ok()) << model.status();
  auto imported = Import(**model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(imported->weights.size(), 2u);
  EXPECT_EQ(imported->weights[0].name, "label.coefficients");
  EXPECT_EQ(imported->weights[0].value.shape(), (Shape{3, 2}));
  EXPECT_EQ(imported->weights[1].name, "label.intercepts");
  for (const GraphInput& input : imported->graph.inputs()) {
    EXPECT_EQ(input.kind, input.name == "x" ? InputKind::kFeed : InputKind::kParameter) << input.name;
  }
  const std::string target = TestFolder() + "/trained.onnx";
  const auto value = HostTensor::FromDoubles({DType::kFloat32, {3, 2}}, std::vector<double>{6, 5, 4, 3, 2, 1});
  auto notes = Export(**model, {{"label.coefficients", value}}, target);
  ASSERT_TRUE(notes.ok()) << notes.status();
  EXPECT_THAT(*notes, ElementsAre("1 attributes replaced"));
  auto again = OnnxModel::Load(target);
  ASSERT_TRUE(again.ok()) << again.status();
  auto back = Import(**again, {.training = true});
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(back->weights[0].value.SameBytes(value));
}

// The softmax of the logits equals the probabilities of the model.
TEST(LinearModels, LogitsOfNormalizedSigmoids) {
  auto imported = ImportModel(Classifier(true));
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(imported->outputs, ElementsAre("table"));
  EXPECT_THAT(imported->notes, ElementsAre(HasSubstr("'label' holds strings"), HasSubstr("ZipMap nodes: 1"),
                                           HasSubstr("'table' is a classifier's")));
  ASSERT_EQ(imported->logits.count("table"), 1u);
  std::map<std::string, HostTensor> feeds = {
      {"x", HostTensor::FromDoubles({DType::kFloat32, {1, 2}}, std::vector<double>{-.5, .2})}};
  for (const ImportedWeight& w : imported->weights) feeds[w.name] = w.value;
  auto values = Interpret(imported->graph, feeds);
  ASSERT_TRUE(values.ok()) << values.status();
  const HostTensor& probabilities = (*values)[0];
  const GraphOutput* output = imported->graph.FindOutput(imported->logits["table"].output);
  ASSERT_NE(output, nullptr);
  const HostTensor& logits = (*values)[output - imported->graph.outputs().data()];
  double sum = 0;
  for (int64_t i = 0; i < 3; ++i) sum += std::exp(logits.At(i));
  for (int64_t i = 0; i < 3; ++i) EXPECT_NEAR(std::exp(logits.At(i)) / sum, probabilities.At(i), 1e-6);
}

// The export of scikit-learn's binary logistic regression: (−w, w) with independent sigmoids.
onnx::ModelProto BinaryClassifier() {
  onnx::ModelProto model = NewModel();
  auto* opset = model.add_opset_import();
  opset->set_domain("ai.onnx.ml");
  opset->set_version(1);
  AddInput(&model, "x", {1, 2});
  auto* linear = AddNode(&model, "LinearClassifier", {"x"}, {"label", "probabilities"});
  SetFloats(linear, "coefficients", {-1, 2, 1, -2});
  SetFloats(linear, "intercepts", {.5f, -.5f});
  SetString(linear, "post_transform", "LOGISTIC");
  SetStrings(linear, "classlabels_strings", {"no", "yes"});
  linear->set_domain("ai.onnx.ml");
  AddOutput(&model, "probabilities");
  return model;
}

TEST(LinearModels, MirroredRowsAreTrainedAsOne) {
  const std::string source = Save(BinaryClassifier());
  auto model = OnnxModel::Load(source);
  ASSERT_TRUE(model.ok()) << model.status();
  auto imported = Import(**model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->weights[0].value.shape(), (Shape{1, 2}));
  EXPECT_EQ(imported->weights[0].value.At(1), -2);
  const std::string target = TestFolder() + "/binary.onnx";
  const auto w = HostTensor::FromDoubles({DType::kFloat32, {1, 2}}, std::vector<double>{3, 4});
  const auto b = HostTensor::FromDoubles({DType::kFloat32, {1}}, std::vector<double>{7});
  const auto notes = Export(**model, {{"label.coefficients", w}, {"label.intercepts", b}}, target);
  ASSERT_TRUE(notes.ok()) << notes.status();
  const auto again = OnnxModel::Load(target);
  ASSERT_TRUE(again.ok()) << again.status();
  const Attrs& attrs = (*again)->parsed().graph.nodes[0].attrs;
  EXPECT_THAT(attrs.Floats("coefficients"), ElementsAre(-3, -4, 3, 4));
  EXPECT_THAT(attrs.Floats("intercepts"), ElementsAre(-7, 7));
}

TEST(ClassLabels, AreThoseOfClassifierZipMapAndTable) {
  const auto labels = [](const onnx::ModelProto& model, const std::string& output) {
    return FindClassLabels(**OnnxModel::Load(Save(model)), output);
  };
  EXPECT_THAT(labels(BinaryClassifier(), ""), ElementsAre("no", "yes"));
  EXPECT_THAT(labels(Classifier(true), "table"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(labels(Classifier(false), ""), ElementsAre());  // the file names none

  onnx::ModelProto model = NewModel();  // scikit-learn's MLPClassifier
  AddInput(&model, "x", {1, 3});
  auto* classes = model.mutable_graph()->add_initializer();
  classes->set_name("classes");
  classes->set_data_type(onnx::TensorProto::STRING);
  classes->add_dims(3);
  for (const char* name : {"u", "v", "w"}) classes->add_string_data(name);
  AddNode(&model, "Softmax", {"x"}, {"softmax"});
  AddNode(&model, "Identity", {"softmax"}, {"probabilities"});
  AddNode(&model, "ArgMax", {"softmax"}, {"best"});
  AddNode(&model, "ArrayFeatureExtractor", {"classes", "best"}, {"label"})->set_domain("ai.onnx.ml");
  AddOutput(&model, "probabilities");
  EXPECT_THAT(labels(model, ""), ElementsAre("u", "v", "w"));
}

TEST(ClassLabels, AreTheValuesOfALabelEncoder) {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "x", {1, 3});
  AddNode(&model, "Identity", {"x"}, {"scores"});
  AddNode(&model, "ArgMax", {"scores"}, {"best"});
  onnx::NodeProto* encoder = AddNode(&model, "LabelEncoder", {"best"}, {"label"});
  encoder->set_domain("ai.onnx.ml");
  SetInts(encoder, "keys_int64s", {2, 0, 1});
  SetInts(encoder, "values_int64s", {20, 30, 10});
  AddOutput(&model, "label");
  EXPECT_THAT(FindClassLabels(**OnnxModel::Load(Save(model)), "scores"), ElementsAre("30", "10", "20"));
}

TEST(LinearModels, TreesAreRefusedByName) {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "x", {1, 2});
  for (const char* op : {"TreeEnsembleClassifier", "SVMRegressor"})
    AddNode(&model, op, {"x"}, {op})->set_domain("ai.onnx.ml");
  AddNode(&model, "Concat", {"TreeEnsembleClassifier", "SVMRegressor"}, {"y"});
  AddOutput(&model, "y");
  EXPECT_THAT(Message(ImportModel(model).status()),
              testing::AllOf(HasSubstr("TreeEnsembleClassifier"), HasSubstr("SVMRegressor")));
}

// y = a·b + a with a = 3, b = 4, and dy/da, dy/db at the point named by `at`.
absl::StatusOr<std::vector<double>> Gradients(const std::vector<std::string>& at, const std::string& y = "y") {
  onnx::ModelProto model = NewModel();
  auto* opset = model.add_opset_import();
  opset->set_domain("ai.onnx.preview.training");
  opset->set_version(1);
  for (const char* name : {"a", "b", "c"}) AddInput(&model, name, {1});
  // Before the nodes that it differentiates: the order in the file does not matter.
  auto* gradient = AddNode(&model, "Gradient", at, {"da", "db"});
  gradient->set_domain("ai.onnx.preview.training");
  SetStrings(gradient, "xs", {"a", "b"});
  SetString(gradient, "y", y);
  AddNode(&model, "Mul", {"a", "b"}, {"p"});
  AddNode(&model, "Add", {"p", "a"}, {"y"});
  AddOutput(&model, "da");
  AddOutput(&model, "db");
  auto imported = ImportModel(model);
  if (!imported.ok()) return imported.status();
  std::map<std::string, HostTensor> feeds;
  double value = 3;
  for (const char* name : {"a", "b", "c"}) feeds[name] = HostTensor::Filled({DType::kFloat32, {1}}, value++);
  auto values = Interpret(imported->graph, feeds);
  if (!values.ok()) return values.status();
  return std::vector<double>{(*values)[0].At(0), (*values)[1].At(0)};
}

TEST(GradientNode, DifferentiatesTheGraphAroundIt) {
  auto g = Gradients({"a", "b"});
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_THAT(*g, ElementsAre(5, 3));
}

TEST(GradientNode, AtAnotherPoint) {
  auto g = Gradients({"c", "a"});  // a = 5, b = 3
  ASSERT_TRUE(g.ok()) << g.status();
  EXPECT_THAT(*g, ElementsAre(4, 5));
}

TEST(GradientNode, RefusesWhatIsNotThere) {
  EXPECT_THAT(Message(Gradients({"a", "b"}, "nobody").status()), HasSubstr("nobody"));
  EXPECT_THAT(Message(Gradients({"a", "b"}, "").status()), HasSubstr("'y'"));
  EXPECT_THAT(Message(Gradients({"a"}).status()), HasSubstr("1 inputs for the 2 values"));
  EXPECT_THAT(Message(Gradients({"a", "b"}, "da").status()), HasSubstr("own output"));
}

}  // namespace
}  // namespace onnxtrain
