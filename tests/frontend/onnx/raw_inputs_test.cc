// Inputs of strings, which become numbers, and inputs whose missing values the model fills in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "frontend/onnx/read/parsed.h"
#include "frontend/ops/host_eval.h"
#include "model_builder.h"

namespace onnxtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

onnx::ModelProto NewMlModel() {
  onnx::ModelProto model = NewModel();
  auto* opset = model.add_opset_import();
  opset->set_domain("ai.onnx.ml");
  opset->set_version(2);
  return model;
}

onnx::NodeProto* AddMlNode(onnx::ModelProto* model, const std::string& op, const std::string& in,
                           const std::string& out) {
  onnx::NodeProto* node = AddNode(model, op, {in}, {out});
  node->set_domain("ai.onnx.ml");
  return node;
}

std::vector<double> Evaluate(const onnx::ModelProto& model, const std::vector<int64_t>& places, Shape shape) {
  const auto imported = ImportModel(model);
  EXPECT_TRUE(imported.ok()) << imported.status();
  if (!imported.ok()) return {};
  const auto values =
      Interpret(imported->graph, {{"t", HostTensor::FromInts({DType::kInt64, std::move(shape)}, places)}});
  EXPECT_TRUE(values.ok()) << values.status();
  std::vector<double> found;
  for (int64_t i = 0; values.ok() && i < (*values)[0].size(); ++i) found.push_back((*values)[0].At(i));
  return found;
}

TEST(TextInputs, EncodersLookPlacesUp) {
  onnx::ModelProto model = NewMlModel();
  AddInput(&model, "t", {4, 1}, onnx::TensorProto::STRING);
  SetStrings(AddMlNode(&model, "OneHotEncoder", "t", "hot"), "cats_strings", {"f", "m"});
  onnx::NodeProto* encoder = AddMlNode(&model, "LabelEncoder", "t", "place");
  SetStrings(encoder, "keys_strings", {"m", "q"});
  SetInts(encoder, "values_int64s", {10, 20});
  SetInt(encoder, "default_int64", 7);
  SetInt(AddNode(&model, "Cast", {"place"}, {"number"}), "to", 1);
  onnx::NodeProto* squeeze = AddNode(&model, "Reshape", {"hot", "shape"}, {"flat"});
  FillInts(AddInitializer(&model, "shape", {2}, 7), {4, 2});
  ASSERT_NE(squeeze, nullptr);
  SetInt(AddNode(&model, "Concat", {"flat", "number"}, {"y"}), "axis", 1);
  AddOutput(&model, "y");
  const auto loaded = LoadModel(model);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(*(*loaded)->inputs()[0].texts, ElementsAre("f", "m", "q"));
  EXPECT_EQ(TypeText((*loaded)->inputs()[0]), "string");
  EXPECT_THAT(Evaluate(model, {0, 1, 2, -1}, {4, 1}), ElementsAre(1, 0, 7, 0, 1, 10, 0, 0, 20, 0, 0, 7));
}

TEST(TextInputs, MovedAndMappedTextsAreFollowed) {
  onnx::ModelProto model = NewMlModel();
  AddInput(&model, "t", {2, 2}, onnx::TensorProto::STRING);
  FillInts(AddInitializer(&model, "second", {1}, 7), {1});
  SetInt(AddNode(&model, "Gather", {"t", "second"}, {"column"}), "axis", 1);
  onnx::NodeProto* rename = AddMlNode(&model, "LabelEncoder", "column", "renamed");
  SetStrings(rename, "keys_strings", {"a", "b"});
  SetStrings(rename, "values_strings", {"x", "y"});
  SetString(rename, "default_string", "z");
  onnx::NodeProto* mapper = AddMlNode(&model, "CategoryMapper", "renamed", "place");
  SetStrings(mapper, "cats_strings", {"z", "y"});
  SetInts(mapper, "cats_int64s", {3, 4});
  SetInt(mapper, "default_int64", 5);
  SetInt(AddNode(&model, "Cast", {"place"}, {"y"}), "to", 1);
  AddOutput(&model, "y");
  const auto loaded = LoadModel(model);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(*(*loaded)->inputs()[0].texts, ElementsAre("a", "b", "x", "y", "z"));
  EXPECT_THAT(Evaluate(model, {0, 1, 0, -1}, {2, 2}), ElementsAre(4, 3));  // "b" → "y", unknown → "z"
  EXPECT_THAT(Evaluate(model, {0, 0, 0, 2}, {2, 2}), ElementsAre(5, 3));   // "a" → "x", which is not mapped
}

TEST(TextInputs, OtherReadersOfTextsAreNotSupported) {
  onnx::ModelProto model = NewMlModel();
  AddInput(&model, "t", {2, 1}, onnx::TensorProto::STRING);
  SetInt(AddNode(&model, "Cast", {"t"}, {"y"}), "to", 1);  // of "1.5"
  AddOutput(&model, "y");
  EXPECT_THAT(Message(ImportModel(model).status()), HasSubstr("input 't' is a tensor of string"));
  // Also where an encoder reads them, too.
  SetStrings(AddMlNode(&model, "OneHotEncoder", "t", "hot"), "cats_strings", {"f", "m"});
  AddOutput(&model, "hot");
  EXPECT_THAT(Message(ImportModel(model).status()), HasSubstr("input 't' is a tensor of string"));
}

TEST(FilledInputs, ReachAnImputerOfNan) {
  for (const float replaced : {std::numeric_limits<float>::quiet_NaN(), 0.0F}) {
    onnx::ModelProto model = NewMlModel();
    AddInput(&model, "a", {2, 1});
    AddInput(&model, "b", {2, 1});
    AddInput(&model, "c", {2, 2});
    SetInt(AddNode(&model, "Concat", {"a", "b"}, {"ab"}), "axis", 1);
    onnx::NodeProto* imputer = AddMlNode(&model, "Imputer", "ab", "filled");
    auto* values = imputer->add_attribute();
    values->set_name("imputed_value_floats");
    values->set_type(onnx::AttributeProto::FLOATS);
    for (const float value : {1.0F, 2.0F}) values->add_floats(value);
    auto* number = imputer->add_attribute();
    number->set_name("replaced_value_float");
    number->set_type(onnx::AttributeProto::FLOAT);
    number->set_f(replaced);
    AddNode(&model, "Add", {"filled", "c"}, {"y"});
    AddOutput(&model, "y");
    const auto loaded = LoadModel(model);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    std::vector<bool> takes;
    for (const OnnxModel::Input& input : (*loaded)->inputs()) takes.push_back(input.takes_missing);
    const bool nan = std::isnan(replaced);
    EXPECT_THAT(takes, ElementsAre(nan, nan, false));
  }
}

}  // namespace
}  // namespace onnxtrain
