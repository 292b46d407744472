// What a model is trained on whose outputs are choices.
#include "frontend/onnx/edit/chosen_scores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "model_builder.h"

namespace onnxtrain {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// x·w with these outputs behind it.
onnx::ModelProto Scores(const std::vector<std::string>& outputs) {
  onnx::ModelProto model = LinearModel();
  model.mutable_graph()->clear_output();
  for (const std::string& output : outputs) AddOutput(&model, output);
  return model;
}

ChosenScores Find(const onnx::ModelProto& model) {
  const auto loaded = LoadModel(model);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? FindChosenScores(**loaded) : ChosenScores();
}

TEST(ChosenScores, TwoChoicesHaveTwoScores) {
  onnx::ModelProto model = Scores({"first", "second"});
  AddNode(&model, "ArgMax", {"y"}, {"first"}, "a");
  AddNode(&model, "Relu", {"y"}, {"r"}, "relu");
  AddNode(&model, "ArgMin", {"r"}, {"second"}, "b");
  const ChosenScores found = Find(model);
  EXPECT_EQ(found.value, "y");
  EXPECT_EQ(found.end, "[ArgMax 'a'] ");
  EXPECT_THAT(found.others, ElementsAre("r"));
}

TEST(ChosenScores, AChoiceBesideScoresIsNone) {
  onnx::ModelProto model = Scores({"label", "y"});
  AddNode(&model, "ArgMax", {"y"}, {"label"}, "a");
  EXPECT_EQ(Find(model).value, "");
}

TEST(ChosenScores, OfSuppressionTheyAreItsScores) {
  onnx::ModelProto model = Scores({"kept"});
  AddNode(&model, "Sigmoid", {"y"}, {"s"}, "sigmoid");
  AddNode(&model, "NonMaxSuppression", {"y", "s"}, {"places"}, "nms");
  AddNode(&model, "Gather", {"y", "places"}, {"kept"}, "gather");
  const ChosenScores found = Find(model);
  EXPECT_EQ(found.value, "s");
  EXPECT_EQ(found.end, "[NonMaxSuppression 'nms'] ");
}

TEST(ChosenScores, NamesOfClassesAreLookedUp) {
  onnx::ModelProto model = Scores({"name"});
  FillFloats(AddInitializer(&model, "names", {3}), {10, 20, 30});
  AddNode(&model, "ArgMax", {"y"}, {"place"}, "a");
  AddNode(&model, "Gather", {"names", "place"}, {"name"}, "gather");
  EXPECT_EQ(Find(model).value, "y");
}

// A choice by y or by the output of nodes before it, and whether the smallest is chosen.
struct Choice {
  const char* name;
  std::function<onnx::NodeProto*(onnx::ModelProto*)> add;
  bool smallest;
};

std::vector<Choice> Choices() {
  const auto compare = [](const char* op, const std::vector<std::string>& inputs) {
    return [op, inputs](onnx::ModelProto* m) { return AddNode(m, op, inputs, {"choice"}, "c"); };
  };
  const auto negate = [](const char* op) {
    return [op](onnx::ModelProto* m) {
      AddNode(m, op, {"y", "zero"}, {"bit"}, "c");
      return AddNode(m, "Not", {"bit"}, {"choice"}, "not");
    };
  };
  const auto top = [](int64_t largest) {
    return [largest](onnx::ModelProto* m) {
      onnx::NodeProto* node = AddNode(m, "TopK", {"y", "k"}, {"v", "choice"}, "c");
      SetInt(node, "largest", largest);
      return node;
    };
  };
  return {{"Greater", compare("Greater", {"y", "zero"}), false},
          {"swapped Greater", compare("Greater", {"zero", "y"}), true},
          {"Less", compare("Less", {"y", "zero"}), true},
          {"swapped LessOrEqual", compare("LessOrEqual", {"zero", "y"}), false},
          {"ArgMax", compare("ArgMax", {"y"}), false},
          {"ArgMin", compare("ArgMin", {"y"}), true},
          {"Greater, Not", negate("Greater"), true},
          {"Less, Not", negate("Less"), false},
          {"TopK", top(1), false},
          {"TopK of the smallest", top(0), true}};
}

TEST(ChosenScores, AreNegatedWhereTheSmallestIsChosen) {
  for (const Choice& choice : Choices()) {
    onnx::ModelProto model = Scores({"choice"});
    FillFloats(AddInitializer(&model, "zero", {1}), {0});
    onnx::TensorProto* k = model.mutable_graph()->add_initializer();
    k->set_name("k");
    k->set_data_type(onnx::TensorProto::INT64);
    k->add_dims(1);
    k->add_int64_data(1);
    choice.add(&model);
    const ChosenScores found = Find(model);
    EXPECT_EQ(found.value, "y") << choice.name;
    EXPECT_EQ(found.smallest, choice.smallest) << choice.name;
    EXPECT_EQ(found.after, "") << choice.name;
  }
}

TEST(ChosenScores, WhatChangesAChoiceIsNamed) {
  onnx::ModelProto model = Scores({"changed"});
  FillFloats(AddInitializer(&model, "two", {1}), {2});
  AddNode(&model, "Greater", {"y", "two"}, {"bit"}, "a");
  SetInt(AddNode(&model, "Cast", {"bit"}, {"f"}, "cast"), "to", onnx::TensorProto::FLOAT);
  AddNode(&model, "Mul", {"f", "two"}, {"changed"}, "scale");
  const ChosenScores found = Find(model);
  EXPECT_EQ(found.value, "y");
  EXPECT_EQ(found.end, "[Greater 'a'] ");
  EXPECT_EQ(found.after, "[Mul 'scale'] ");
}

// Integers that only DequantizeLinear reads are rounded floats; as outputs of the model they have no gradient.
TEST(ChosenScores, RoundedScoresAreNoChoice) {
  for (const bool integers : {false, true}) {
    onnx::ModelProto model = Scores({integers ? "q" : "f"});
    FillFloats(AddInitializer(&model, "scale", {}), {0.1});
    AddNode(&model, "QuantizeLinear", {"y", "scale"}, {"q"}, "round");
    if (!integers) AddNode(&model, "DequantizeLinear", {"q", "scale"}, {"f"}, "floats");
    EXPECT_EQ(Find(model).end, integers ? "[QuantizeLinear 'round'] " : "");
  }
}

TEST(ChosenScores, TheirMaximumIsNoOutputToTrain) {
  onnx::ModelProto model = Scores({"confidence", "label"});
  AddNode(&model, "Softmax", {"y"}, {"p"}, "softmax");
  AddNode(&model, "ReduceMax", {"p"}, {"confidence"}, "max");
  AddNode(&model, "ArgMax", {"p"}, {"label"}, "a");
  EXPECT_EQ(Find(model).value, "p");
}

TEST(ChosenScores, WithoutScoresTheOperatorIsKnown) {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "x", {-1, 3});
  AddNode(&model, "ArgMax", {"x"}, {"label"}, "a");
  AddOutput(&model, "label");
  const ChosenScores found = Find(model);
  EXPECT_EQ(found.value, "");
  EXPECT_EQ(found.end, "[ArgMax 'a'] ");
  EXPECT_THAT(found.others, IsEmpty());
}

}  // namespace
}  // namespace onnxtrain
