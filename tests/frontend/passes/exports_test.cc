// What PyTorch makes of transformers, exported at opsets that have no LayerNormalization, Gelu or attention operator:
// the composites come back, the outputs stay, and so do the gradients.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "frontend/onnx/import.h"
#include "frontend/passes/differentiate.h"
#include "frontend/passes/pipeline.h"
#include "tests/frontend/passes/testing.h"
#include "tests/paths.h"

namespace onnxtrain {
namespace {

std::string Counts(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const Node& node : graph.nodes()) ++counts[node.op];
  return StrCat("Attention ", counts["Attention"], ", Gelu ", counts["Gelu"], ", LayerNorm ", counts["LayerNorm"],
                ", Softmax ", counts["Softmax"], ", Erf ", counts["Erf"], ", Tanh ", counts["Tanh"], ", ReduceMean ",
                counts["ReduceMean"]);
}

// The gradients of output 0 with respect to all parameters, by name.
std::map<std::string, HostTensor> Gradients(const Graph& forward, const std::map<std::string, HostTensor>& inputs) {
  Graph joint = forward;
  joint.ClearOutputs();
  std::vector<ValueId> wrt;
  for (const GraphInput& input : forward.inputs()) {
    if (input.kind == InputKind::kParameter) wrt.push_back(input.value);
  }
  const auto gradients = Differentiate(&joint, forward.outputs()[0].value, wrt);
  EXPECT_TRUE(gradients.ok()) << gradients.status();
  for (const auto& [v, gradient] : *gradients) joint.AddOutput(joint.inputs()[joint.value(v).index].name, gradient);
  const auto clean = CleanUp(joint);
  EXPECT_TRUE(clean.ok()) << clean.status();
  const std::vector<HostTensor> values = MustRun(*clean, inputs);
  std::map<std::string, HostTensor> named;
  for (size_t i = 0; i < values.size(); ++i) named[clean->outputs()[i].name] = values[i];
  return named;
}

class Exports : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = StrCat(testing::TempDir(), "onnxtrain_exports_", getpid());
    std::filesystem::create_directories(folder);
    const std::string command =
        StrCat("/usr/bin/python3 ", RepoPath("tests/frontend/passes/export_encoders.py"), " ", folder);
    ASSERT_EQ(std::system(command.c_str()), 0) << "python3-torch is needed";
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder); }

  static std::string folder;
};
std::string Exports::folder;

TEST_F(Exports, AreRecognized) {
  const std::pair<std::string_view, std::string_view> kModels[] = {
      {"encoder", "Attention 2, Gelu 2, LayerNorm 4, Softmax 0, Erf 0, Tanh 0, ReduceMean 1"},
      {"encoder_prenorm", "Attention 2, Gelu 2, LayerNorm 4, Softmax 0, Erf 0, Tanh 0, ReduceMean 1"},
      {"encoder_padding", "Attention 2, Gelu 2, LayerNorm 4, Softmax 0, Erf 0, Tanh 0, ReduceMean 1"},
      {"decoder", "Attention 1, Gelu 1, LayerNorm 2, Softmax 0, Erf 0, Tanh 0, ReduceMean 0"},
      {"bert", "Attention 1, Gelu 1, LayerNorm 1, Softmax 0, Erf 0, Tanh 0, ReduceMean 0"},
  };
  for (const auto& [name, expected] : kModels) {
    for (int opset : {11, 13, 16}) {
      SCOPED_TRACE(StrCat(name, " ", opset));
      const auto model = OnnxModel::Load(StrCat(folder, "/", name, "_", opset, ".onnx"));
      ASSERT_TRUE(model.ok()) << model.status();
      const auto imported = Import(**model, {.float_type = DType::kFloat64});
      ASSERT_TRUE(imported.ok()) << imported.status();
      const auto canonical = Canonicalize(imported->graph);
      ASSERT_TRUE(canonical.ok()) << canonical.status();
      EXPECT_EQ(Counts(*canonical), expected) << Print(*canonical);
      auto inputs = RandomInputs(imported->graph);
      for (const ImportedWeight& weight : imported->weights)
        inputs[weight.name] = weight.value.CastTo(inputs[weight.name].dtype());
      const auto before = MustRun(imported->graph, inputs), after = MustRun(*canonical, inputs);
      for (size_t i = 0; i < before.size(); ++i) ExpectNear(before[i], after[i], 1e-6);
      const auto gradients = Gradients(imported->graph, inputs), same = Gradients(*canonical, inputs);
      ASSERT_EQ(gradients.size(), same.size());
      ASSERT_FALSE(gradients.empty());
      for (const auto& [parameter, gradient] : gradients) ExpectNear(gradient, same.at(parameter), 1e-5, parameter);
    }
  }
}

}  // namespace
}  // namespace onnxtrain
