// Tests the stacks of MoE and QMoE that adapters target, and their names.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "frontend/onnx/edit/low_rank.h"
#include "tests/frontend/onnx/model_builder.h"

namespace onnxtrain {
namespace {

std::string Stack(const std::string& name) { return "model.layers.0.moe.experts." + name; }

void AddUint8(onnx::ModelProto* model, const std::string& name, const std::vector<int64_t>& dims) {
  int64_t size = 1;
  for (const int64_t d : dims) size *= d;
  AddInitializer(model, name, dims, onnx::TensorProto::UINT8)->set_raw_data(std::string(static_cast<size_t>(size), 1));
}

void AddFloats(onnx::ModelProto* model, const std::string& name, const std::vector<int64_t>& dims) {
  int64_t size = 1;
  for (const int64_t d : dims) size *= d;
  FillFloats(AddInitializer(model, name, dims), std::vector<float>(static_cast<size_t>(size), 0.5f));
}

// x [3,4] and a router of two experts of six units.
onnx::ModelProto Model(const std::string& producer, std::vector<std::string> layers, const std::string& op) {
  onnx::ModelProto model = NewModel(20);
  model.set_producer_name(producer);
  onnx::OperatorSetIdProto* domain = model.add_opset_import();
  domain->set_domain("com.microsoft");
  domain->set_version(1);
  AddInput(&model, "x", {3, 4});
  AddFloats(&model, "model.layers.0.moe.router.MatMul.weight", {4, 2});
  AddNode(&model, "MatMul", {"x", "model.layers.0.moe.router.MatMul.weight"}, {"scores"});
  layers.insert(layers.begin(), {"x", "scores"});
  onnx::NodeProto* node = AddNode(&model, op, layers, {"y"}, "/model/layers.0/moe/" + op);
  node->set_domain("com.microsoft");
  if (op == "QMoE") SetInt(node, "expert_weight_bits", 4);
  AddOutput(&model, "y");
  return model;
}

onnx::ModelProto Floats(const std::string& producer, const std::vector<int64_t>& up) {
  const std::string fc1 = Stack("gate_up_proj.weight"), fc2 = Stack("down_proj.weight");
  onnx::ModelProto model = Model(producer, {fc1, "", fc2}, "MoE");
  AddFloats(&model, fc1, up);
  AddFloats(&model, fc2, {2, 4, 6});
  return model;
}

std::vector<LowRankTarget> List(const onnx::ModelProto& model) {
  const auto loaded = LoadModel(model);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? ListLowRankTargets(**loaded) : std::vector<LowRankTarget>();
}

TEST(ExpertTargets, HaveTheNamesOfTransformersInFilesOfGenai) {
  const std::vector<LowRankTarget> targets = List(Floats("onnxruntime-genai", {2, 6, 4}));
  ASSERT_EQ(targets.size(), 3u);
  EXPECT_EQ(targets[0].parameter(), "model.layers.0.mlp.router.weight");
  EXPECT_TRUE(targets[0].of_parameter);
  EXPECT_EQ(targets[1].parameter(), "model.layers.0.mlp.experts.gate_up_proj");
  EXPECT_EQ(targets[2].parameter(), "model.layers.0.mlp.experts.down_proj");
  EXPECT_EQ(targets[2].inputs, 6);
  EXPECT_EQ(targets[2].outputs, 4);
  EXPECT_EQ(targets[2].experts, 2);
}

TEST(ExpertTargets, HaveTheNamesOfOtherFiles) {
  const std::vector<LowRankTarget> targets = List(Floats("other", {2, 6, 4}));
  ASSERT_EQ(targets.size(), 3u);
  EXPECT_EQ(targets[0].parameter(), "model.layers.0.moe.router.MatMul.weight");
  EXPECT_FALSE(targets[0].of_parameter);
  EXPECT_EQ(targets[1].parameter(), "model.layers.0.moe.experts.gate_up_proj.weight");
}

// The shapes of older files do not say which axis is that of the inputs.
TEST(ExpertTargets, LeaveOutShapesOfOlderFiles) {
  const std::vector<LowRankTarget> targets = List(Floats("other", {2, 4, 6}));
  ASSERT_EQ(targets.size(), 1u);
  EXPECT_EQ(targets[0].experts, 0);
}

TEST(ExpertTargets, CountTheNumbersInBytes) {
  const std::string fc1 = Stack("gate_up_proj.qweight"), fc2 = Stack("down_proj.qweight");
  onnx::ModelProto model = Model("onnxruntime-genai", {fc1, "s1", "", fc2, "s2"}, "QMoE");
  AddUint8(&model, fc1, {2, 6, 2});
  AddUint8(&model, fc2, {2, 4, 3});
  AddFloats(&model, "s1", {2, 6});
  AddFloats(&model, "s2", {2, 4});
  const std::vector<LowRankTarget> targets = List(model);
  ASSERT_EQ(targets.size(), 3u);
  EXPECT_EQ(targets[1].parameter(), "model.layers.0.mlp.experts.gate_up_proj");
  EXPECT_EQ(targets[1].inputs, 4);
  EXPECT_EQ(targets[1].outputs, 6);
  EXPECT_EQ(targets[2].inputs, 6);
  EXPECT_EQ(targets[2].dtype, DType::kFloat32);
}

}  // namespace
}  // namespace onnxtrain
