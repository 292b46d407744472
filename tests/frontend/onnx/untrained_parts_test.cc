// Recurrent layers whose second bias is zeros.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "frontend/graph/graph.h"
#include "tests/frontend/onnx/model_builder.h"

namespace onnxtrain {
namespace {

// One unit; `second` is the bias of the state for each gate.
onnx::ModelProto Recurrent(const std::string& op, int64_t gates, float second) {
  onnx::ModelProto model = NewModel(17);
  model.set_producer_name("tf2onnx");
  AddInput(&model, "x", {3, 2, 1});
  const std::vector<float> ones(static_cast<size_t>(gates), 1);
  FillFloats(AddInitializer(&model, "W", {1, gates, 1}), ones);
  FillFloats(AddInitializer(&model, "R", {1, gates, 1}), ones);
  std::vector<float> biases = ones;
  biases.resize(static_cast<size_t>(2 * gates), second);
  FillFloats(AddInitializer(&model, "B", {1, 2 * gates}), biases);
  SetInt(AddNode(&model, op, {"x", "W", "R", "B"}, {"y"}), "hidden_size", 1);
  AddOutput(&model, "y");
  return model;
}

struct Imported {
  bool noted = false;
  std::ptrdiff_t slices = 0;  // one of B for each bias that is read, and those of the cell
};

Imported ImportRecurrent(const onnx::ModelProto& model) {
  const auto imported = ImportModel(model, {.training = true});
  EXPECT_TRUE(imported.ok()) << imported.status();
  const auto names_bias = [](const std::string& n) { return n.find("second half of 'B' is zeros") != n.npos; };
  const auto is_slice = [](const Node& node) { return node.op == "Slice"; };
  return {.noted = std::ranges::any_of(imported->notes, names_bias),
          .slices = std::ranges::count_if(imported->graph.nodes(), is_slice)};
}

TEST(SingleBiases, ZerosOfTheOtherBiasAreNotTrained) {
  for (const auto& [op, gates] : {std::pair("LSTM", 4), {"RNN", 1}, {"GRU", 3}}) {
    const Imported one = ImportRecurrent(Recurrent(op, gates, 0)), two = ImportRecurrent(Recurrent(op, gates, 0.5F));
    EXPECT_TRUE(one.noted) << op;
    EXPECT_FALSE(two.noted) << op;
    EXPECT_EQ(one.slices + 1, two.slices) << op;
  }
}

TEST(SingleBiases, BothAreTrainedWhereTheFrameworkHasBoth) {
  onnx::ModelProto model = Recurrent("LSTM", 4, 0);
  model.set_producer_name("pytorch");
  EXPECT_FALSE(ImportRecurrent(model).noted);
  EXPECT_EQ(ImportRecurrent(model).slices, ImportRecurrent(Recurrent("LSTM", 4, 0.5F)).slices);
  model = Recurrent("GRU", 3, 0);
  SetInt(model.mutable_graph()->mutable_node(0), "linear_before_reset", 1);
  EXPECT_FALSE(ImportRecurrent(model).noted);
}

}  // namespace
}  // namespace onnxtrain
