// What a model is trained on whose outputs are choices.
#include "frontend/onnx/chosen_scores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
