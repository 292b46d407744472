// x[mask].view(batch, -1, width)[:, -1] as PyTorch exports it: the state at the last end token of each text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "frontend/ops/host_eval.h"
#include "model_builder.h"

namespace onnxtrain {
namespace {

constexpr int kInt64 = 7, kBool = 9;

void AddInts(onnx::ModelProto* model, const std::string& name, const std::vector<int64_t>& values, bool scalar) {
  FillInts(
      AddInitializer(model, name, scalar ? std::vector<int64_t>() : std::vector<int64_t>{std::ssize(values)}, kInt64),
      values);
}

// Embeds ids [N, L] in table [6, 2] and takes the row at `index` of those whose id is 5, viewed by `view`.
onnx::ModelProto Classifier(int64_t index, const std::vector<int64_t>& view) {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "ids", {-1, -1}, kInt64);
  FillFloats(AddInitializer(&model, "table", {6, 2}), {0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51});
  AddInts(&model, "end", {5}, true);
  AddInts(&model, "last", {index}, true);
  AddInts(&model, "view", view, false);
  AddNode(&model, "Gather", {"table", "ids"}, {"tokens"});
  AddNode(&model, "CumSum", {"tokens", "axis"}, {"x"});  // tells positions with one id apart
  AddInts(&model, "axis", {1}, true);
  AddNode(&model, "Equal", {"ids", "end"}, {"is_end"});
  SetInt(AddNode(&model, "Cast", {"is_end"}, {"mask"}), "to", kBool);
  AddNode(&model, "NonZero", {"mask"}, {"places"});
  SetInts(AddNode(&model, "Transpose", {"places"}, {"columns"}), "perm", {1, 0});
  AddNode(&model, "GatherND", {"x", "columns"}, {"selected"});
  AddNode(&model, "Reshape", {"selected", "view"}, {"rows"});
  SetInt(AddNode(&model, "Gather", {"rows", "last"}, {"y"}), "axis", 1);
  AddOutput(&model, "y");
  return model;
}

ImportOptions TwoOfFour() {
  ImportOptions options{.batch = 2};
  options.input_shapes["ids"] = {2, 4};
  return options;
}

TEST(LastSelected, IsTheRowOfTheLastPosition) {
  const auto model = ImportModel(Classifier(-1, {2, -1, 2}), TwoOfFour());
  ASSERT_TRUE(model.ok()) << model.status();
  HostTensor ids({DType::kInt64, {2, 4}});
  const int64_t values[] = {5, 1, 5, 0, 5, 5, 1, 2};
  for (int64_t i = 0; i < ids.size(); ++i) ids.SetInt(i, values[i]);
  std::map<std::string, HostTensor> feeds = {{"ids", ids}};
  for (const ImportedWeight& w : model->weights) feeds[w.name] = w.value;
  const auto y = Interpret(model->graph, feeds);
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT((*y)[0].ToDoubles(), testing::ElementsAre(110, 113, 100, 102));
}

TEST(LastSelected, OtherSelectionsAreRefused) {
  EXPECT_THAT(Message(ImportModel(Classifier(0, {2, -1, 2}), TwoOfFour()).status()), testing::HasSubstr("NonZero"));
  EXPECT_THAT(Message(ImportModel(Classifier(-1, {1, -1, 2}), TwoOfFour()).status()),
              testing::HasSubstr("is not viewed as rows of the batch"));
}

TEST(LastSelected, TheExportKeepsTheNodes) {
  const auto again = RoundTrip(Classifier(-1, {2, -1, 2}), {{"table", Floats({6, 2}, std::vector<double>(12, 1))}});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->graph().node_size(), 9);
}

}  // namespace
}  // namespace onnxtrain
