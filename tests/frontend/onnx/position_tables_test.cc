// Frequencies, cosines and sines of positions are not trained, whatever their values are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "tests/frontend/onnx/model_builder.h"
#include "tests/frontend/onnx/torch_metadata.h"

namespace onnxtrain {
namespace {

// The weights that are kept fixed as those of positions.
std::set<std::string> ListFixed(const onnx::ModelProto& model) {
  const auto imported = ImportModel(model, {.training = true});
  if (!imported.ok()) return {Message(imported.status())};
  std::set<std::string> fixed;
  for (const ImportedWeight& weight : imported->weights) {
    if (weight.fixed == FixedWeight::kConstant) fixed.insert(weight.name);
  }
  return fixed;
}

// Factors that are no progression.
const std::vector<float> kScaled = {1, 0.31F, 0.022F, 0.001F};

// An attention's queries [1, 5, 4], rotated as TorchScript's exporter writes it: the angles are frequencies times
// positions. `angles` makes "angles" [1, 5, 4].
onnx::ModelProto Rotated(const std::function<void(onnx::ModelProto*)>& angles) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {1, 5, 4});
  angles(&model);
  AddNode(&model, "Cos", {"angles"}, {"cos"});
  AddNode(&model, "Sin", {"angles"}, {"sin"});
  AddNode(&model, "Mul", {"x", "cos"}, {"a"});
  AddNode(&model, "Neg", {"x"}, {"turned"});
  AddNode(&model, "Mul", {"turned", "sin"}, {"b"});
  AddNode(&model, "Add", {"a", "b"}, {"y"});
  AddOutput(&model, "y");
  return model;
}

// frequencies [4, 1] · positions [1, 5], transposed
void AddProduct(onnx::ModelProto* model, const std::string& positions, const std::string& frequencies) {
  AddInput(model, positions, {1, 5}, 7);
  FillFloats(AddInitializer(model, frequencies, {1, 4, 1}), kScaled);
  SetInt(AddNode(model, "Cast", {positions}, {"float"}), "to", 1);
  FillInts(AddInitializer(model, "axis", {1}, 7), {1});
  AddNode(model, "Unsqueeze", {"float", "axis"}, {"row"});
  AddNode(model, "MatMul", {frequencies, "row"}, {"product"});
  SetInts(AddNode(model, "Transpose", {"product"}, {"angles"}), "perm", {0, 2, 1});
}

TEST(PositionTables, FrequenciesTimesPositions) {
  EXPECT_EQ(ListFixed(Rotated([](auto* m) { AddProduct(m, "position_ids", "onnx::Expand_9"); })),
            (std::set<std::string>{"onnx::Expand_9"}));
  EXPECT_EQ(ListFixed(Rotated([](auto* m) { AddProduct(m, "position_ids", "rope.freqs"); })),
            (std::set<std::string>{"rope.freqs"}))
      << "whatever they are called";
}

TEST(PositionTables, FrequenciesInConstantNodes) {
  const auto model = Rotated([](onnx::ModelProto* m) {
    AddProduct(m, "position_ids", "stored");
    auto* graph = m->mutable_graph();
    onnx::TensorProto stored = graph->initializer(0);
    graph->mutable_initializer()->DeleteSubrange(0, 1);
    onnx::NodeProto* node = AddNode(m, "Constant", {}, {"stored"}, "Constant_315");
    *SetTensor(node, "value") = stored;
    for (int i = graph->node_size() - 1; i > 0; --i) graph->mutable_node()->SwapElements(i, i - 1);
  });
  EXPECT_EQ(ListFixed(model), (std::set<std::string>{"stored"}));
}

// Positions from the extent of the input, as where a program has no position_ids.
TEST(PositionTables, FrequenciesTimesARange) {
  const auto model = Rotated([](onnx::ModelProto* m) {
    FillFloats(AddInitializer(m, "freqs", {4}), kScaled);
    FillInts(AddInitializer(m, "one", {}, 7), {1});
    FillInts(AddInitializer(m, "zero", {}, 7), {0});
    FillInts(AddInitializer(m, "axis", {1}, 7), {1});
    AddNode(m, "Shape", {"x"}, {"shape"});
    AddNode(m, "Gather", {"shape", "one"}, {"length"});
    AddNode(m, "Range", {"zero", "length", "one"}, {"range"});
    SetInt(AddNode(m, "Cast", {"range"}, {"float"}), "to", 1);
    AddNode(m, "Unsqueeze", {"float", "axis"}, {"column"});
    AddNode(m, "Mul", {"column", "freqs"}, {"angles"});
  });
  EXPECT_EQ(ListFixed(model), (std::set<std::string>{"freqs"}));
}

TEST(PositionTables, MetadataThatSaysParameterCounts) {
  onnx::ModelProto model = Rotated([](auto* m) { AddProduct(m, "position_ids", "freqs"); });
  AddSignature(&model, "\n# inputs\np_freqs: PARAMETER target='freqs'\nx: USER_INPUT\n");
  EXPECT_EQ(ListFixed(model), (std::set<std::string>{}));
  EXPECT_EQ(FindWeight(*ImportModel(model, {.training = true}), "freqs")->fixed, FixedWeight::kNo);
}

// W·x for data x: learned Fourier features.
TEST(PositionTables, FeaturesOfDataAreTrained) {
  const auto model = Rotated([](onnx::ModelProto* m) {
    FillFloats(AddInitializer(m, "onnx::MatMul_5", {4, 4}), {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 8});
    AddNode(m, "MatMul", {"x", "onnx::MatMul_5"}, {"angles"});
  });
  EXPECT_EQ(ListFixed(model), (std::set<std::string>{}));
}

// A layer with sines as activations, over positions: the filters of Hyena.
TEST(PositionTables, SinesAloneAreActivations) {
  onnx::ModelProto model = Rotated([](auto* m) { AddProduct(m, "position_ids", "freqs"); });
  for (onnx::NodeProto& node : *model.mutable_graph()->mutable_node()) {
    if (node.op_type() == "Cos") node.set_op_type("Sin");
  }
  EXPECT_EQ(ListFixed(model), (std::set<std::string>{}));
}

// Angles that are embeddings of a user's numbers (Sun et al., 2019, "RotatE"), and angles by position.
TEST(PositionTables, LookupsOfAnglesByIdsAreTrained) {
  const auto fixed = [](const std::string& ids, bool multiples) {
    return ListFixed(Rotated([&](onnx::ModelProto* m) {
      AddInput(m, ids, {1, 5}, 7);
      std::vector<float> table;
      for (int i = 0; i < 24; ++i) {
        const auto row = static_cast<float>(i / 4);
        table.push_back(multiples ? row * kScaled[i % 4] : std::fmod(row * 0.7F + kScaled[i % 4], 1.0F));
      }
      FillFloats(AddInitializer(m, "angles_by_id", {6, 4}), table);
      AddNode(m, "Gather", {"angles_by_id", ids}, {"angles"});
    }));
  };
  EXPECT_EQ(fixed("relation", false), (std::set<std::string>{}));
  EXPECT_EQ(fixed("relation", true), (std::set<std::string>{"angles_by_id"}));
  EXPECT_EQ(fixed("position_ids", false), (std::set<std::string>{"angles_by_id"}));
}

// x·c + rotate(x)·s with tables [6, 4] of cosines and sines, scaled as YaRN does, of any angles (of two axes, say).
TEST(PositionTables, CosinesAndSinesThatRotateData) {
  const auto fixed = [](double last) {
    onnx::ModelProto model = NewModel(17);
    AddInput(&model, "x", {1, 6, 4});
    std::vector<float> c, s;
    for (int i = 0; i < 24; ++i) {
      const double angle = 0.9 * ((i * 7) % 5) + 0.2 * i;
      c.push_back(static_cast<float>(1.14 * std::cos(angle)));
      s.push_back(static_cast<float>(1.14 * std::sin(angle)));
    }
    s.back() = static_cast<float>(s.back() * last);
    FillFloats(AddInitializer(&model, "c", {6, 4}), c);
    FillFloats(AddInitializer(&model, "s", {6, 4}), s);
    AddNode(&model, "Neg", {"x"}, {"turned"});
    AddNode(&model, "Mul", {"x", "c"}, {"a"});
    AddNode(&model, "Mul", {"turned", "s"}, {"b"});
    AddNode(&model, "Add", {"a", "b"}, {"y"});
    AddOutput(&model, "y");
    return ListFixed(model);
  };
  EXPECT_EQ(fixed(1), (std::set<std::string>{"c", "s"}));
  EXPECT_EQ(fixed(1.5), (std::set<std::string>{})) << "a trained product of complex numbers";
}

TEST(PositionTables, CachesOfFusedRotations) {
  onnx::ModelProto model = NewModel(17);
  auto* opset = model.add_opset_import();
  opset->set_domain("com.microsoft");
  opset->set_version(1);
  AddInput(&model, "x", {1, 2, 3, 4});
  AddInput(&model, "ids", {1, 3}, 7);
  FillFloats(AddInitializer(&model, "cos_cache", {3, 2}), {1, 1, 0.5F, 0.9F, -0.4F, 0.8F});
  FillFloats(AddInitializer(&model, "sin_cache", {3, 2}), {0, 0, 0.8F, 0.1F, 0.9F, 0.2F});
  onnx::NodeProto* node = AddNode(&model, "RotaryEmbedding", {"x", "ids", "cos_cache", "sin_cache"}, {"y"});
  node->set_domain("com.microsoft");
  AddOutput(&model, "y");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_TRUE(std::ranges::all_of(imported->weights, [](const auto& w) { return w.fixed == FixedWeight::kConstant; }));
}

}  // namespace
}  // namespace onnxtrain
