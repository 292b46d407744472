// What weights are without the metadata of torch.export, by their readers, names and numbers.
#include <gtest/gtest.h>

#include <algorithm>

#include "frontend/base/strings.h"
#include "tests/frontend/onnx/model_builder.h"
#include "tests/frontend/onnx/torch_metadata.h"

namespace onnxtrain {
namespace {

// Two products with a bias each, and norms, as the older exporter names nodes; the file has one initializer for all
// biases and one for all scales.
onnx::ModelProto NamedModules(const std::string& first, const std::string& second) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 3, 3});
  FillFloats(AddInitializer(&model, "onnx::MatMul_7", {3, 3}), {1, 2, 3, 4, 5, 6, 7, 8, 9});
  AddFilled(&model, first + ".bias", {3}, 0);
  AddFilled(&model, first + ".weight", {3}, 1);
  AddNode(&model, "MatMul", {"x", "onnx::MatMul_7"}, {"a"}, "/fc/MatMul");
  AddNode(&model, "Add", {first + ".bias", "a"}, {"b"}, "/fc/Add");
  AddNode(&model, "LayerNormalization", {"b", first + ".weight", first + ".bias"}, {"c"}, "/" + first + "/LayerNorm");
  AddNode(&model, "LayerNormalization", {"c", first + ".weight", first + ".bias"}, {"y"}, "/" + second + "/LayerNorm");
  AddOutput(&model, "y");
  return model;
}

TEST(MergedWeights, ModulesOfReadersTellWeightsApart) {
  const auto imported = ImportModel(NamedModules("n1", "n2"), {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(WeightNames(*imported),
            (Names{"fc.bias", "n1.bias", "n1.weight", "n2.bias", "n2.weight", "onnx::MatMul_7"}));
  EXPECT_EQ(FindWeight(*imported, "onnx::MatMul_7")->alias, "fc.weight");
}

TEST(MergedWeights, AModuleThatRunsTwiceKeepsItsWeights) {
  const auto imported = ImportModel(NamedModules("norm", "norm_1"), {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(WeightNames(*imported), (Names{"fc.bias", "norm.bias", "norm.weight", "onnx::MatMul_7"}));
}

// ONNX Runtime's optimizer numbers the nodes that it has fused, and merges the scales and shifts of a fresh model.
TEST(MergedWeights, FusedNodesHaveWeightsOfTheirOwn) {
  onnx::ModelProto model = NewModel(17);
  onnx::OperatorSetIdProto* opset = model.add_opset_import();
  opset->set_domain("com.microsoft"), opset->set_version(1);
  AddInput(&model, "x", {1, 2, 3});
  AddFilled(&model, "l.weight", {3}, 1);
  AddFilled(&model, "l.bias", {3}, 0);
  AddNode(&model, "SkipLayerNormalization", {"x", "x", "l.weight", "l.bias", "l.bias"}, {"a"}, "SkipLayerNorm_0")
      ->set_domain("com.microsoft");
  AddNode(&model, "BiasGelu", {"a", "l.bias"}, {"b"}, "Gelu_0")->set_domain("com.microsoft");
  AddNode(&model, "LayerNormalization", {"b", "l.weight", "l.bias"}, {"y"}, "LayerNorm_0");
  AddOutput(&model, "y");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->weights.size(), 6U) << "two scales, two shifts, two biases";
}

// Two products with equal matrices; the second reads its copy through an Identity.
onnx::ModelProto TwoProducts(const std::string& second) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 3});
  FillFloats(AddInitializer(&model, "onnx::MatMul_7", {3, 3}), {1, 2, 3, 4, 5, 6, 7, 8, 9});
  AddNode(&model, "Identity", {"onnx::MatMul_7"}, {"onnx::MatMul_8"}, "Identity_0");
  AddNode(&model, "MatMul", {"x", "onnx::MatMul_7"}, {"a"}, "/layers.0/fc/MatMul");
  AddNode(&model, "MatMul", {"a", "onnx::MatMul_8"}, {"y"}, "/" + second + "/MatMul");
  AddOutput(&model, "y");
  return model;
}

TEST(MergedWeights, CopiesOfOneModuleAreOneWeight) {
  const auto calls = ImportModel(TwoProducts("layers.0/fc_1"), {.training = true});
  ASSERT_TRUE(calls.ok()) << calls.status();
  EXPECT_EQ(WeightNames(*calls), (Names{"onnx::MatMul_7"}));
  EXPECT_EQ(FindWeight(*calls, "onnx::MatMul_7")->alias, "layers.0.fc.weight");
  const auto clones = ImportModel(TwoProducts("layers.1/fc"), {.training = true});
  ASSERT_TRUE(clones.ok()) << clones.status();
  EXPECT_EQ(WeightNames(*clones), (Names{"onnx::MatMul_7", "onnx::MatMul_8"}));
}

// Parameters of two layers, read where they are: numbers, and a choice of streams of zeros and ones.
TEST(MergedWeights, FreshNumbersAndChoicesOfOneScopeAreSplit) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 3});
  FillFloats(AddInitializer(&model, "layers.0.scale", {}), {0.5F});
  FillFloats(AddInitializer(&model, "layers.0.alpha", {2, 3}), {1, 0, 1, 0, 1, 1});
  AddNode(&model, "Identity", {"layers.0.scale"}, {"layers.1.scale"}, "Identity_0");
  AddNode(&model, "Identity", {"layers.0.alpha"}, {"layers.1.alpha"}, "Identity_1");
  std::string last = "x";
  for (const std::string layer : {"layers.0", "layers.1"}) {
    AddNode(&model, "Tanh", {last}, {layer + ".t"}, "/" + layer + "/Tanh");
    AddNode(&model, "Mul", {layer + ".t", layer + ".scale"}, {layer + ".m"}, "/" + layer + "/Mul");
    AddNode(&model, "Add", {layer + ".m", layer + ".alpha"}, {layer + ".y"}, "/Add");
    last = layer + ".y";
  }
  AddOutput(&model, last);
  EXPECT_EQ(TrainingWeightNames(model),
            (Names{"layers.0.alpha", "layers.0.scale", "layers.1.alpha", "layers.1.scale"}));
}

TEST(MergedWeights, BiasesOfDifferentMatricesAreSplitWithoutNames) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 3});
  FillFloats(AddInitializer(&model, "w1", {3, 3}), {1, 2, 3, 4, 5, 6, 7, 8, 9});
  FillFloats(AddInitializer(&model, "w2", {3, 3}), {3, 2, 3, 4, 5, 6, 7, 8, 9});
  AddFilled(&model, "b", {3}, 0);
  AddNode(&model, "Gemm", {"x", "w1", "b"}, {"a"});
  AddNode(&model, "Gemm", {"a", "w1", "b"}, {"c"});
  AddNode(&model, "Gemm", {"c", "w2", "b"}, {"y"});
  AddOutput(&model, "y");
  EXPECT_EQ(TrainingWeightNames(model), (Names{"b", "b_1", "w1", "w2"}));
}

// norm, product, norm, product, norm, in a file whose nodes have lost the names of their modules.
onnx::ModelProto UnnamedNorms(const std::string& second_matrix) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 3});
  FillFloats(AddInitializer(&model, "w1", {3, 3}), {1, 2, 3, 4, 5, 6, 7, 8, 9});
  FillFloats(AddInitializer(&model, "w2", {3, 3}), {3, 2, 3, 4, 5, 6, 7, 8, 9});
  AddFilled(&model, "scale", {3}, 1);
  AddNode(&model, "LayerNormalization", {"x", "scale"}, {"a"}, "node_layer_norm");
  AddNode(&model, "MatMul", {"a", "w1"}, {"b"}, "node_MatMul");
  AddNode(&model, "LayerNormalization", {"b", "scale"}, {"c"}, "node_layer_norm_1");
  AddNode(&model, "Relu", {"c"}, {"d"}, "node_relu");
  AddNode(&model, "MatMul", {"d", second_matrix}, {"e"}, "node_MatMul_1");
  AddNode(&model, "LayerNormalization", {"e", "scale"}, {"y"}, "node_layer_norm_2");
  AddOutput(&model, "y");
  return model;
}

TEST(MergedWeights, ScalesBeforeDifferentMatricesAreSplitWithoutNames) {
  EXPECT_EQ(TrainingWeightNames(UnnamedNorms("w2")), (Names{"scale", "scale_1", "scale_2", "w1", "w2"}));
  EXPECT_EQ(TrainingWeightNames(UnnamedNorms("w1")), (Names{"scale", "w1"})) << "one layer that runs twice";
}

// x / √(x² + 1) · scale, twice, with a product behind each.
TEST(MergedWeights, ScalesOfNormsWrittenOutAreSplitWithoutNames) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 3});
  AddFilled(&model, "scale", {3}, 1);
  AddFilled(&model, "one", {}, 1);
  std::string x = "x";
  for (const std::string n : {"1", "2"}) {
    FillFloats(AddInitializer(&model, "w" + n, {3, 3}), {1, 2, 3, 4, 5, 6, 7, 8, n == "1" ? 9.F : 1.F});
    AddNode(&model, "Mul", {x, x}, {"square" + n});
    AddNode(&model, "Add", {"square" + n, "one"}, {"sum" + n});
    AddNode(&model, "Sqrt", {"sum" + n}, {"root" + n});
    if (n == "1") {
      AddNode(&model, "Div", {x, "root1"}, {"norm1"});
    } else {
      AddNode(&model, "Reciprocal", {"root2"}, {"inverse"});
      AddNode(&model, "Mul", {x, "inverse"}, {"norm2"});
    }
    AddNode(&model, "Mul", {"scale", "norm" + n}, {"scaled" + n});
    AddNode(&model, "MatMul", {"scaled" + n, "w" + n}, {"y" + n});
    x = "y" + n;
  }
  AddOutput(&model, "y2");
  EXPECT_EQ(TrainingWeightNames(model), (Names{"scale", "scale_1", "w1", "w2"}));
}

TEST(MergedWeights, ValuesThatWereTrainedStayShared) {
  onnx::ModelProto model = NamedModules("n1", "n2");
  FillFloats(model.mutable_graph()->mutable_initializer(1), {1, 2, 3});
  FillFloats(model.mutable_graph()->mutable_initializer(2), {1, 2, 3});
  EXPECT_EQ(TrainingWeightNames(model), (Names{"n1.bias", "n1.weight", "onnx::MatMul_7"}));
}

// x·name·name, or, with one product, softmax(x·name).
onnx::ModelProto Factor(const std::string& name, const std::vector<int64_t>& dims, bool twice) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 4});
  AddFilled(&model, name, dims, 0.5);
  AddFilled(&model, "w", {4}, 2);
  AddNode(&model, "Mul", {"x", name}, {"a"});
  AddNode(&model, twice ? "Mul" : "Softmax",
          twice ? std::vector<std::string>{"a", name} : std::vector<std::string>{"a"}, {"b"});
  AddNode(&model, "Mul", {"b", "w"}, {"y"});
  AddOutput(&model, "y");
  return model;
}

TEST(Factors, AreTrainedIfTheyAreCalledLikeParameters) {
  struct Case {
    const char* name;
    std::vector<int64_t> dims;
    bool twice, trained;
  };
  const Case cases[] = {{"logit_scale", {}, false, true},  {"layers.0.gamma", {1}, true, true},
                        {"val_68", {1}, true, false},      {"onnx::Mul_12", {1}, false, false},
                        {"eps", {}, true, false},          {"model/scale:0", {}, true, true},
                        {"dpa_scale_0", {}, false, false}, {"scale_1", {1}, true, false},
                        {"attn.scale_0", {}, false, true}};
  for (const Case& c : cases) {
    const auto imported = ImportModel(Factor(c.name, c.dims, c.twice), {.training = true});
    ASSERT_TRUE(imported.ok()) << imported.status();
    EXPECT_EQ(FindWeight(*imported, c.name) != nullptr, c.trained) << c.name;
  }
}

// PyTorch's tracer stores the numbers of formulas in Constant nodes: other ones are parameters, whatever their names.
TEST(Factors, NumbersThatTheTracerStoredAreTrained) {
  onnx::ModelProto model = Factor("temp", {}, false);
  EXPECT_EQ(FindWeight(*ImportModel(model, {.training = true}), "temp"), nullptr);
  onnx::ModelProto traced = NewModel(17);
  AddInput(&traced, "x", {2, 4});
  AddFilled(&traced, "temp", {}, 0.5);
  AddFilled(&traced, "scale_of_scores", {1}, 0.5);
  AddNode(&traced, "Mul", {"x", "scale_of_scores"}, {"a"}, "/Mul");
  AddNode(&traced, "Softmax", {"a"}, {"b"}, "/Softmax");
  AddNode(&traced, "Div", {"b", "temp"}, {"y"}, "/Div");
  AddOutput(&traced, "y");
  const auto imported = ImportModel(traced, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_NE(FindWeight(*imported, "temp"), nullptr);
}

// x·s + (shift − mean·s) with s = scale / √(variance + ε), as JAX and TensorFlow write it.
void AddNormOfJax(onnx::ModelProto* model, bool negates) {
  AddInput(model, "x", {2, 3});
  for (const char* name : {"const_2", "const_3", "const_4", "const_5"})
    FillFloats(AddInitializer(model, name, {3}), {1, 2, 4});
  FillFloats(AddInitializer(model, "const_9", {}), {0.001F});
  FillFloats(AddInitializer(model, "one", {}), {1});
  AddNode(model, "Add", {"const_3", "const_9"}, {"v"});
  AddNode(model, "Sqrt", {"v"}, {"root"});
  AddNode(model, "Div", {"one", "root"}, {"inverse"});
  AddNode(model, "Mul", {"inverse", "const_4"}, {"s"});
  if (negates) AddNode(model, "Neg", {"const_2"}, {"minus"});
  AddNode(model, "Mul", {negates ? "minus" : "const_2", "s"}, {"m"});
  if (negates) {
    AddNode(model, "Add", {"m", "const_5"}, {"b"});
  } else {
    AddNode(model, "Sub", {"const_5", "m"}, {"b"});
  }
  AddNode(model, "Mul", {"x", "s"}, {"scaled"});
  AddNode(model, "Add", {"scaled", "b"}, {"y"});
  AddOutput(model, "y");
}

void ExpectStatisticsFixed(const onnx::ModelProto& model) {
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  for (const char* name : {"const_2", "const_3"})
    EXPECT_EQ(FindWeight(*imported, name)->fixed, FixedWeight::kBuffer) << name;
  for (const char* name : {"const_4", "const_5"})
    EXPECT_EQ(FindWeight(*imported, name)->fixed, FixedWeight::kNo) << name;
}

TEST(FixedWeights, StatisticsOfBatchNormAsArithmetic) {
  for (const bool negates : {false, true}) {
    onnx::ModelProto model = NewModel(17);
    AddNormOfJax(&model, negates);
    ExpectStatisticsFixed(model);
  }
  onnx::ModelProto centered = NewModel(17);
  AddNormOfJax(&centered, true);
  centered.mutable_graph()->mutable_node()->DeleteSubrange(4, 5);
  AddNode(&centered, "Sub", {"x", "const_2"}, {"c"});
  AddNode(&centered, "Mul", {"c", "s"}, {"d"});
  AddNode(&centered, "Add", {"d", "const_5"}, {"y"});
  ExpectStatisticsFixed(centered);
}

TEST(FixedWeights, SlopesWithoutAxesAreParameters) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 3});
  FillFloats(AddInitializer(&model, "const_4", {}), {0.25F});
  AddNode(&model, "PRelu", {"x", "const_4"}, {"y"});
  AddOutput(&model, "y");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(WeightNames(*imported), Names{"const_4"});
}

TEST(FixedWeights, OnesThatSumOverWindows) {
  for (const char* name : {"reduce_window_sum_kernel_0", "block.kernel_0", "weight"}) {
    onnx::ModelProto model = NewModel(17);
    AddInput(&model, "x", {2, 1, 4, 4});
    AddFilled(&model, name, {1, 1, 2, 2}, 1);
    AddNode(&model, "Conv", {"x", name}, {"y"});
    AddOutput(&model, "y");
    const auto imported = ImportModel(model, {.training = true});
    ASSERT_TRUE(imported.ok()) << imported.status();
    const bool numbered = std::string_view(name).starts_with("reduce");
    EXPECT_EQ(FindWeight(*imported, name)->fixed, numbered ? FixedWeight::kConstant : FixedWeight::kNo) << name;
  }
}

TEST(FixedWeights, MeansAndDeviationsOfInputs) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 3, 2, 2});
  for (const char* name : {"mean", "std", "shift"}) FillFloats(AddInitializer(&model, name, {3, 1, 1}), {1, 2, 3});
  FillFloats(AddInitializer(&model, "centers", {2, 2}), {1, 2, 3, 4});
  AddNode(&model, "Sub", {"x", "mean"}, {"a"});
  AddNode(&model, "Div", {"a", "std"}, {"b"});
  AddNode(&model, "Tanh", {"b"}, {"c"});
  AddNode(&model, "Sub", {"c", "shift"}, {"y"});
  AddNode(&model, "Sub", {"x", "centers"}, {"z"});
  AddOutput(&model, "y");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(FindWeight(*imported, "mean")->fixed, FixedWeight::kStandardizer);
  EXPECT_EQ(FindWeight(*imported, "std")->fixed, FixedWeight::kStandardizer);
  EXPECT_EQ(FindWeight(*imported, "shift")->fixed, FixedWeight::kNo);
  model.mutable_graph()->mutable_output(0)->set_name("z");
  EXPECT_EQ(FindWeight(*ImportModel(model, {.training = true}), "centers")->fixed, FixedWeight::kNo);
}

// The 1 of a GELU, which an optimizer has made an initializer.
TEST(FixedWeights, ConstantNodesThatBecameInitializers) {
  const auto is_trained = [](const std::string& name) {
    onnx::ModelProto model = NewModel(17);
    AddInput(&model, "x", {2, 3});
    FillFloats(AddInitializer(&model, name, {1}), {1});
    AddNode(&model, "Add", {"x", name}, {"y"}, "/act/Add");
    AddOutput(&model, "y");
    const auto imported = ImportModel(model, {.training = true});
    const ImportedWeight* weight = imported.ok() ? FindWeight(*imported, name) : nullptr;
    return weight != nullptr && weight->fixed == FixedWeight::kNo;
  };
  EXPECT_FALSE(is_trained("/act/Constant_1_output_0"));
  EXPECT_FALSE(is_trained("/act/Constant_output_0"));
  EXPECT_FALSE(is_trained("helper.constant.0"));
  EXPECT_TRUE(is_trained("act.Constant_weight"));
}

// Both directions of a fresh LSTM have one bias, which the exporter has merged, and read it behind different products.
TEST(FixedWeights, BiasesOfFreshLstmsAreTrained) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 2});
  FillFloats(AddInitializer(&model, "onnx::MatMul_1", {2, 8}), {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  FillFloats(AddInitializer(&model, "onnx::MatMul_2", {2, 8}), {2, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  FillFloats(AddInitializer(&model, "onnx::Add_3", {8}), {0, 0, 1, 1, 0, 0, 0, 0});
  for (const std::string direction : {"1", "2"}) {
    AddNode(&model, "MatMul", {"x", "onnx::MatMul_" + direction}, {"product" + direction}, "/MatMul_" + direction);
    AddNode(&model, "Add", {"product" + direction, "onnx::Add_3"}, {"gates" + direction}, "/Add_" + direction);
  }
  AddNode(&model, "Mul", {"gates1", "gates2"}, {"y"}, "/Mul");
  AddOutput(&model, "y");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(imported->weights.size(), 4U);
  for (const ImportedWeight& weight : imported->weights) EXPECT_EQ(weight.fixed, FixedWeight::kNo) << weight.name;
}

// Batch normalization as Keras exports it through PyTorch.
TEST(FixedWeights, MeansOfWrittenOutNormalizations) {
  const auto fixed = [](const std::string& mean) {
    onnx::ModelProto model = NewModel(17);
    AddInput(&model, "x", {2, 3});
    FillFloats(AddInitializer(&model, "onnx::MatMul_1", {3, 2}), {1, 2, 3, 4, 5, 6});
    for (const std::string& name : {mean, std::string("onnx::Mul_4"), std::string("onnx::Add_5")})
      FillFloats(AddInitializer(&model, name, {1, 2}), {3, 4});
    AddNode(&model, "MatMul", {"x", "onnx::MatMul_1"}, {"a"}, "/MatMul");
    AddNode(&model, "Sub", {"a", mean}, {"b"}, "/Sub");
    AddNode(&model, "Mul", {"b", "onnx::Mul_4"}, {"c"}, "/Mul");
    AddNode(&model, "Add", {"c", "onnx::Add_5"}, {"y"}, "/Add");
    AddOutput(&model, "y");
    return FindWeight(*ImportModel(model, {.training = true}), mean)->fixed;
  };
  EXPECT_EQ(fixed("onnx::Sub_3"), FixedWeight::kBuffer);
  EXPECT_EQ(fixed("center"), FixedWeight::kNo);
}

// skl2onnx calls the numbers of its transforms after the operators that read them, and coefficients of some models,
// too.
TEST(FixedWeights, NumbersOfTransformsOfInputs) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "X", {2, 3});
  for (const char* name : {"Mu_Mulcst", "pref_Powcst1", "Ad_Addcst"})
    FillFloats(AddInitializer(&model, name, {3}), {1, 2, 3});
  FillFloats(AddInitializer(&model, "Ma_MatMulcst", {3, 3}), {1, 2, 3, 4, 5, 6, 7, 8, 9});
  SetInt(AddNode(&model, "Cast", {"X"}, {"a"}), "to", onnx::TensorProto::FLOAT);
  AddNode(&model, "Mul", {"a", "Mu_Mulcst"}, {"b"});
  AddNode(&model, "Pow", {"b", "pref_Powcst1"}, {"c"});
  AddNode(&model, "MatMul", {"c", "Ma_MatMulcst"}, {"d"});
  AddNode(&model, "Add", {"d", "Ad_Addcst"}, {"y"});
  AddOutput(&model, "y");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  for (const char* name : {"Mu_Mulcst", "pref_Powcst1"})
    EXPECT_EQ(FindWeight(*imported, name)->fixed, FixedWeight::kStandardizer) << name;
  for (const char* name : {"Ma_MatMulcst", "Ad_Addcst"})
    EXPECT_EQ(FindWeight(*imported, name)->fixed, FixedWeight::kNo) << name;
}

TEST(FixedWeights, TablesOfZerosAndOnesThatNoLayerHasAsWeight) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 2, 2});
  FillFloats(AddInitializer(&model, "onnx::Add_9", {2, 2}), {1, 0, 0, 1});
  FillFloats(AddInitializer(&model, "fc.weight", {2, 2}), {1, 0, 0, 1});
  FillFloats(AddInitializer(&model, "0.mask", {2, 2}), {1, 0, 0, 1});
  FillFloats(AddInitializer(&model, "lambdas", {2}), {1, 0});
  FillFloats(AddInitializer(&model, "W", {2, 2}), {1, 0, 0, 1});
  FillFloats(AddInitializer(&model, "norm.scale", {2}), {1, 0});
  AddNode(&model, "Add", {"x", "onnx::Add_9"}, {"a"}, "/Add");
  AddNode(&model, "Mul", {"a", "0.mask"}, {"b"}, "/0/Mul");
  AddNode(&model, "Mul", {"b", "lambdas"}, {"e"}, "/Mul");
  AddNode(&model, "Mul", {"e", "norm.scale"}, {"c"}, "/norm/Mul");
  AddNode(&model, "MatMul", {"c", "W"}, {"d"}, "/1/MatMul");
  AddNode(&model, "MatMul", {"d", "fc.weight"}, {"y"}, "/fc/MatMul");
  AddOutput(&model, "y");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(FindWeight(*imported, "onnx::Add_9")->fixed, FixedWeight::kConstant);
  EXPECT_EQ(FindWeight(*imported, "0.mask")->fixed, FixedWeight::kConstant);
  EXPECT_EQ(FindWeight(*imported, "lambdas")->fixed, FixedWeight::kNo);
  EXPECT_EQ(FindWeight(*imported, "W")->fixed, FixedWeight::kNo);
  EXPECT_EQ(FindWeight(*imported, "norm.scale")->fixed, FixedWeight::kNo);
  EXPECT_EQ(FindWeight(*imported, "fc.weight")->fixed, FixedWeight::kNo);
}

// Vision transformers that start as convolutions have unit matrices; the exporter has renamed what it transposed.
TEST(FixedWeights, UnitMatricesOfLinearLayersAreTrained) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 2, 2});
  FillFloats(AddInitializer(&model, "onnx::MatMul_9", {2, 2}), {1, 0, 0, 1});
  FillFloats(AddInitializer(&model, "onnx::MatMul_10", {2, 2}), {0, 1, 1, 0});
  AddNode(&model, "MatMul", {"x", "onnx::MatMul_9"}, {"a"}, "/attn/v/MatMul");
  AddNode(&model, "MatMul", {"a", "onnx::MatMul_10"}, {"b"}, "/attn/MatMul");
  AddNode(&model, "Softmax", {"b"}, {"y"}, "/attn/Softmax");
  AddOutput(&model, "y");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(FindWeight(*imported, "onnx::MatMul_9")->fixed, FixedWeight::kNo);
  EXPECT_EQ(FindWeight(*imported, "onnx::MatMul_10")->fixed, FixedWeight::kConstant);
}

// The graph of a graph network and a kernel that blurs: nothing draws such numbers.
TEST(FixedWeights, MatricesOfGraphsAreNoWeights) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 3, 3});
  FillFloats(AddInitializer(&model, "supports", {2, 3, 3}),
             {0.5F, 0.5F, 0, 0.2F, 0.3F, 0.5F, 0, 0, 1, 0, 0.7F, 0.1F, 0.7F, 0, -0.4F, 0.1F, -0.4F, 0});
  FillFloats(AddInitializer(&model, "start", {3, 3}), {1, 0, 0, 0, 1, 0, 0, 0, 1});
  FillFloats(AddInitializer(&model, "mix", {3, 3}), {0.5F, 0.4F, 0.1F, 0.2F, 0.3F, 0.5F, 0.1F, 0.1F, 0.9F});
  FillFloats(AddInitializer(&model, "fc.weight", {3, 3}), {0, 1, 2, 1, 0, 3, 2, 3, 0});
  AddNode(&model, "MatMul", {"supports", "x"}, {"a"}, "/MatMul");
  AddNode(&model, "MatMul", {"a", "start"}, {"b"}, "/MatMul_1");
  AddNode(&model, "MatMul", {"b", "mix"}, {"c"}, "/MatMul_2");
  AddNode(&model, "MatMul", {"c", "fc.weight"}, {"y"}, "/fc/MatMul");
  AddOutput(&model, "y");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(FindWeight(*imported, "supports")->fixed, FixedWeight::kConstant);
  for (const char* weight : {"start", "mix", "fc.weight"})
    EXPECT_EQ(FindWeight(*imported, weight)->fixed, FixedWeight::kNo) << weight;
}

// A fresh scale of zeros, folded into a weight, leaves zeros of both signs.
TEST(FixedWeights, WeightsOfZerosOfBothSignsAreTrained) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 2});
  FillFloats(AddInitializer(&model, "onnx::Gemm_9", {2, 2}), {0.0F, -0.0F, 0.0F, 0.0F});
  AddNode(&model, "Gemm", {"x", "onnx::Gemm_9"}, {"y"}, "/fc/Gemm");
  AddOutput(&model, "y");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(FindWeight(*imported, "onnx::Gemm_9")->fixed, FixedWeight::kNo);
}

TEST(Factors, ConstantNodesOfPyTorchAreFixed) {
  onnx::ModelProto model = Factor("gamma", {1}, false);
  onnx::NodeProto* constant = AddNode(&model, "Constant", {}, {"/g/Constant_output_0"}, "/g/Constant");
  onnx::TensorProto* value = SetTensor(constant, "value");
  value->set_data_type(1);
  value->add_dims(4);
  FillFloats(value, {1, 2, 3, 4});
  AddNode(&model, "Mul", {"y", "/g/Constant_output_0"}, {"z"});
  AddOutput(&model, "z");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_NE(FindWeight(*imported, "/g/Constant_output_0"), nullptr);
  EXPECT_EQ(FindWeight(*imported, "/g/Constant_output_0")->fixed, FixedWeight::kConstant);
}

TEST(FixedWeights, ListsOfEquallySpacedNumbersOrPowers) {
  const auto fixed = [](const std::string& op, const std::vector<float>& values) {
    onnx::ModelProto model = NewModel(17);
    AddInput(&model, "x", {3, static_cast<int64_t>(values.size())});
    FillFloats(AddInitializer(&model, "f", {static_cast<int64_t>(values.size())}), values);
    AddNode(&model, "Identity", {"f"}, {"copy"});  // that of another module
    AddNode(&model, "Relu", {"x"}, {"r"});
    AddNode(&model, op, {"r", "f"}, {"z"});
    AddNode(&model, op, {"z", "copy"}, {"y"});
    AddOutput(&model, "y");
    const auto imported = ImportModel(model, {.training = true});
    const bool is_fixed = FindWeight(*imported, "f")->fixed != FixedWeight::kNo;
    EXPECT_EQ(FindWeight(*imported, "copy")->fixed != FixedWeight::kNo, is_fixed) << op;
    return is_fixed;
  };
  EXPECT_TRUE(fixed("Mul", {1, 2, 4, 8}));
  EXPECT_TRUE(fixed("Sub", {-2, -1.25F, -0.5F, 0.25F, 1}));
  EXPECT_FALSE(fixed("Mul", {1, 2, 4, 7}));
  EXPECT_FALSE(fixed("Mul", {1, 1, 1, 1}));
}

// Whether the matrix of a product is fixed whose sine and second function are read.
bool IsFixedBehindSine(const std::string& matrix, const std::string& second) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 2});
  FillFloats(AddInitializer(&model, matrix, {2, 3}), {1.5, -2.25, 0.7, 3.1, 0.2, -1.9});
  AddFilled(&model, "two_pi", {}, 6.2832f);
  AddNode(&model, "MatMul", {"x", matrix}, {"p"}, "/MatMul");
  AddNode(&model, "Mul", {"p", "two_pi"}, {"a"}, "/Mul");
  AddNode(&model, "Sin", {"a"}, {"s"}, "/Sin");
  AddNode(&model, second, {"a"}, {"c"}, "/" + second);
  AddNode(&model, "Add", {"s", "c"}, {"y"}, "/Add");
  AddOutput(&model, "y");
  const auto imported = ImportModel(model, {.training = true});
  EXPECT_TRUE(imported.ok()) << imported.status();
  return imported.ok() && FindWeight(*imported, matrix)->fixed == FixedWeight::kBuffer;
}

TEST(WeightRoles, RandomFrequenciesAreFixed) {
  EXPECT_TRUE(IsFixedBehindSine("encoding.B", "Cos"));
  EXPECT_FALSE(IsFixedBehindSine("encoding.B", "Tanh"));
  EXPECT_FALSE(IsFixedBehindSine("encoding.weight", "Cos"));
}

// Broken files may have such nodes.
TEST(WeightRoles, ProductsWithoutOutputsHaveNoReaders) {
  for (const bool scaled : {false, true}) {
    onnx::ModelProto model = NewModel(17);
    AddInput(&model, "x", {2, 2});
    AddFilled(&model, "encoding.B", {2, 3}, 0.5f);
    AddNode(&model, "MatMul", {"x", "encoding.B"}, scaled ? Names{"p"} : Names{}, "/MatMul");
    if (scaled) AddNode(&model, "Mul", {"p", "p"}, {}, "/Mul");
    AddNode(&model, "Sin", {"x"}, {"y"}, "/Sin");
    AddOutput(&model, "y");
    const auto imported = ImportModel(model, {.training = true});
    EXPECT_TRUE(imported.ok() || !Message(imported.status()).empty());
  }
}

TEST(WeightRoles, BuffersOfKnownLibrariesAreFixed) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 3});
  AddFilled(&model, "model.final_logits_bias", {1, 3}, 0);
  AddFilled(&model, "model.bias", {1, 3}, 0);
  AddNode(&model, "Add", {"x", "model.final_logits_bias"}, {"a"}, "/Add");
  AddNode(&model, "Add", {"a", "model.bias"}, {"y"}, "/Add_1");
  AddOutput(&model, "y");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(FindWeight(*imported, "model.final_logits_bias")->fixed, FixedWeight::kBuffer);
  EXPECT_EQ(FindWeight(*imported, "model.bias")->fixed, FixedWeight::kNo);
}

// BART adds a buffer of zeros to its predictions, and moves it to their device.
TEST(WeightRoles, AnUnnamedRowOfZerosBehindAnotherModuleIsFixed) {
  const auto fixed = [](const std::string& name, const std::vector<int64_t>& shape, float value, const char* module) {
    onnx::ModelProto model = NewModel(17);
    AddInput(&model, "x", {2, 3});
    FillFloats(AddInitializer(&model, "onnx::MatMul_7", {3, 4}), {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3});
    AddFilled(&model, name, shape, value);
    AddNode(&model, "MatMul", {"x", "onnx::MatMul_7"}, {"p"}, "/lm_head/MatMul");
    AddNode(&model, "Add", {"p", name}, {"y"}, StrCat(module, "/Add"));
    AddOutput(&model, "y");
    const auto imported = ImportModel(model, {.training = true});
    EXPECT_TRUE(imported.ok()) << imported.status();
    return FindWeight(*imported, name)->fixed != FixedWeight::kNo;
  };
  EXPECT_TRUE(fixed("onnx::Add_9", {1, 4}, 0, ""));
  EXPECT_FALSE(fixed("onnx::Add_9", {1, 4}, 0.5F, "")) << "trained";
  EXPECT_FALSE(fixed("onnx::Add_9", {4}, 0, "")) << "the bias of a layer";
  EXPECT_FALSE(fixed("onnx::Add_9", {1, 4}, 0, "/lm_head")) << "beside the product";
  EXPECT_FALSE(fixed("bias", {1, 4}, 0, ""));
}

}  // namespace
}  // namespace onnxtrain
