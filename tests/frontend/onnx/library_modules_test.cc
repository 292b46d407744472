// Tests that modules have the names that the library of the model counts from, whatever wraps it for the export.
#include <gtest/gtest.h>

#include <string>

#include "frontend/onnx/edit/low_rank.h"
#include "tests/frontend/onnx/model_builder.h"
#include "tests/frontend/onnx/torch_metadata.h"

namespace onnxtrain {
namespace {

// Returns the module of a product with `weight`.
std::string Module(const std::string& weight, const std::string& scopes, const std::string& classes) {
  onnx::ModelProto model = NewModel(20);
  AddInput(&model, "x", {3, 4});
  AddFilled(&model, weight, {4, 2}, 0.5f);
  onnx::NodeProto* node = AddNode(&model, "MatMul", {"x", weight}, {"y"});
  AddFx(node, "linear", "linear.default", "%x, %p_weight");
  AddScopes(node, scopes);
  AddMetadata(node, 9, "pkg.torch.onnx.class_hierarchy", classes);
  AddOutput(&model, "y");
  const auto loaded = LoadModel(model);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  const std::vector<LowRankTarget> targets = ListLowRankTargets(**loaded);
  EXPECT_EQ(targets.size(), 1u);
  return targets.empty() ? "" : targets[0].module;
}

TEST(LibraryModules, AreNamedAsInTheLibrary) {
  const std::string scopes = "['', 'inner', 'inner.visual', 'inner.visual.proj', 'linear']";
  const auto name = [&](const std::string& classes) { return Module("inner.visual.proj.weight", scopes, classes); };
  EXPECT_EQ(name("['W', 'transformers.models.a.AForB', 'c.C', 'torch.nn.Linear', 'aten']"), "visual.proj");
  EXPECT_EQ(name("['W', 'mine.Tower', 'timm.models.vit.ViT', 'torch.nn.Linear', 'aten']"), "proj");
  EXPECT_EQ(name("['transformers.models.a.AForB', 'b.B', 'c.C', 'torch.nn.Linear', 'aten']"), "inner.visual.proj");
  EXPECT_EQ(name("['W', 'mine.Net', 'transformers.pytorch_utils.Conv1D', 'torch.nn.Linear', 'aten']"),
            "inner.visual.proj");
  EXPECT_EQ(name("['W', 'mine.Net', 'mine.Tower', 'torch.nn.Linear', 'aten']"), "inner.visual.proj");
}

// The layers of ALBERT are one module. The exporter stores its weight, transposed, for each product.
TEST(LibraryModules, AModuleThatIsCalledTwiceIsOneTarget) {
  onnx::ModelProto model = NewModel(20);
  AddInput(&model, "x", {3, 2});
  AddSignature(&model, "\n# inputs\np_cell_weight: PARAMETER target='cell.weight'\nx: USER_INPUT\n");
  for (const char* copy : {"val_1", "val_2"}) {
    FillFloats(AddInitializer(&model, copy, {2, 2}), {1, 2, 3, 4});
    AddFoldedFrom(&model, copy, "['cell.weight']");
  }
  AddFx(AddNode(&model, "MatMul", {"x", "val_1"}, {"h"}), "linear", "linear.default", "%x, %p_cell_weight");
  AddFx(AddNode(&model, "MatMul", {"h", "val_2"}, {"y"}), "linear_1", "linear.default", "%linear, %p_cell_weight");
  AddOutput(&model, "y");
  const auto loaded = LoadModel(model);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const std::vector<LowRankTarget> targets = ListLowRankTargets(**loaded);
  ASSERT_EQ(targets.size(), 1u);
  EXPECT_EQ(targets[0].module, "cell");
  EXPECT_EQ(targets[0].nodes, (std::vector<std::string>{"h", "y"}));
  EXPECT_FALSE(targets[0].outputs_first);
  EXPECT_TRUE(ListLeftOutProducts(**loaded).empty());
}

}  // namespace
}  // namespace onnxtrain
