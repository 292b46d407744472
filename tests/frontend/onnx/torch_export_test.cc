// Models as torch.export writes them: which initializers are parameters, which were merged, how they are called.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "frontend/base/strings.h"
#include "frontend/onnx/edit/low_rank.h"
#include "frontend/onnx/recover/rows.h"
#include "frontend/onnx/recover/torch_export.h"
#include "tests/frontend/onnx/model_builder.h"
#include "tests/frontend/onnx/torch_metadata.h"

namespace onnxtrain {
namespace {

// Two layers of LayerNorm, whose fresh scales and biases the exporter has merged.
onnx::ModelProto TwoNorms(const std::string& second) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 4});
  AddFilled(&model, "n1.weight", {4}, 1);
  AddFilled(&model, "n1.bias", {4}, 0);
  AddSignature(&model,
               "\n# inputs\np_n1_weight: PARAMETER target='n1.weight'\np_n1_bias: PARAMETER target='n1.bias'\n"
               "p_n2_weight: PARAMETER target='n2.weight'\np_n2_bias: PARAMETER target='n2.bias'\nx: USER_INPUT\n");
  AddFx(AddNode(&model, "LayerNormalization", {"x", "n1.weight", "n1.bias"}, {"a"}), "layer_norm", "layer_norm.default",
        "%x, [4], %p_n1_weight, %p_n1_bias");
  AddFx(AddNode(&model, "LayerNormalization", {"a", "n1.weight", "n1.bias"}, {"y"}), "layer_norm_1",
        "layer_norm.default", "%layer_norm, [4], %p_" + second + "_weight, %p_" + second + "_bias");
  AddOutput(&model, "y");
  return model;
}

TEST(TorchExport, WeightsMergedByTheirBytesAreSplit) {
  const auto imported = ImportModel(TwoNorms("n2"), {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(WeightNames(*imported), (Names{"n1.bias", "n1.weight", "n2.bias", "n2.weight"}));
}

TEST(TorchExport, AModuleThatRunsTwiceKeepsItsWeights) {
  const auto imported = ImportModel(TwoNorms("n1"), {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(WeightNames(*imported), (Names{"n1.bias", "n1.weight"}));
}

TEST(TorchExport, TheExportSplitsInitializersWhoseValuesDiffer) {
  const std::map<std::string, HostTensor> weights = {{"n1.weight", Floats({4}, {1, 2, 3, 4})},
                                                     {"n1.bias", Floats({4}, {5, 5, 5, 5})},
                                                     {"n2.weight", Floats({4}, {4, 3, 2, 1})},
                                                     {"n2.bias", Floats({4}, {5, 5, 5, 5})}};
  std::vector<std::string> notes;
  const auto exported = RoundTrip(TwoNorms("n2"), weights, &notes);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->graph().initializer_size(), 3);
  EXPECT_EQ(exported->graph().node(0).input(1), "n1.weight");
  EXPECT_EQ(exported->graph().node(1).input(1), "n2.weight");
  EXPECT_EQ(exported->graph().node(1).input(2), "n1.bias");
  EXPECT_TRUE(std::ranges::any_of(notes, [](const auto& n) { return n.find("became initializers") != n.npos; }));
}

// Two modules that multiply by 1 + weight, of which the exporter has stored the first alone; then by 1 − a where `a` is
// stored too, and by a + b.
onnx::ModelProto Expressions() {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 4});
  for (const char* name : {"add_6", "sub", "a", "sum_1"})
    AddFilled(&model, name, {4}, std::string(name) == "a" ? 3 : 1);
  AddSignature(&model,
               "\n# inputs\np_n1_weight: PARAMETER target='n1.weight'\np_n2_weight: PARAMETER target='n2.weight'\n"
               "p_a: PARAMETER target='a'\np_b: PARAMETER target='b'\nx: USER_INPUT\n");
  AddFoldedFrom(&model, "add_6", "['n1.weight', 'val_6']");
  AddFoldedFrom(&model, "sub", "['a', 'val_9']");
  AddFoldedFrom(&model, "sum_1", "['a', 'b', 'val_9']");
  const auto add = [&](const std::string& in, const std::string& weight, const std::string& out,
                       const std::string& args, const std::string& scopes) {
    onnx::NodeProto* node = AddNode(&model, "Mul", {in, weight}, {out});
    AddFx(node, out, "mul.Tensor", args);
    AddScopes(node, scopes);
  };
  add("x", "add_6", "m1", "%x, %add_6", "['', 'n1', 'm1']");
  add("m1", "add_6", "m2", "%m1, %add_8", "['', 'n2', 'm2']");
  add("m2", "sub", "m3", "%m2, %sub", "['', 'm3']");
  add("m3", "a", "m4", "%m3, %p_a", "['', 'm4']");
  add("m4", "sum_1", "y", "%m4, %sum_1", "['', 'y']");
  AddOutput(&model, "y");
  return model;
}

TEST(TorchExport, MergedExpressionsOfParametersAreSplitByModule) {
  EXPECT_EQ(TrainingWeightNames(Expressions()), (Names{"a", "add_6", "n2.weight", "sub", "sum_1"}));
}

// Two modules that multiply by views of two fresh parameters each, all of which the exporter has stored once.
TEST(TorchExport, MergedExpressionsOfOneModuleAreSplit) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 4});
  AddFilled(&model, "unsqueeze_1", {4}, 1e-5F);
  AddSignature(&model,
               "\n# inputs\np_b0_s1: PARAMETER target='b0.s1'\np_b0_s2: PARAMETER target='b0.s2'\n"
               "p_b1_s1: PARAMETER target='b1.s1'\np_b1_s2: PARAMETER target='b1.s2'\nx: USER_INPUT\n");
  AddFoldedFrom(&model, "unsqueeze_1", "['b0.s1', 'val_3']");
  const char* kArguments[] = {"%x, %unsqueeze_1", "%m0, %unsqueeze_3", "%m1, %unsqueeze_5", "%m2, %unsqueeze_7"};
  for (int i = 0; i < 4; ++i) {
    const std::string out = StrCat("m", i);
    onnx::NodeProto* node = AddNode(&model, "Mul", {i == 0 ? "x" : StrCat("m", i - 1), "unsqueeze_1"}, {out});
    AddFx(node, out, "mul.Tensor", kArguments[i]);
    AddScopes(node, StrCat("['', 'b", i / 2, "', '", out, "']"));
  }
  AddOutput(&model, "m3");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(WeightNames(*imported), (Names{"b0.s2", "b1.s1", "b1.s2", "unsqueeze_1"}));
  EXPECT_EQ(FindWeight(*imported, "unsqueeze_1")->alias, "b0.s1");
}

// Two rows of one fresh parameter, which the exporter has stored once; the first is read twice.
TEST(TorchExport, MergedPartsOfOneParameterAreSplit) {
  for (const bool fresh : {true, false}) {
    onnx::ModelProto model = NewModel(17);
    AddInput(&model, "x", {2, 4});
    FillFloats(AddInitializer(&model, "select", {4}), {fresh ? 1.0F : 2.0F, 1, 1, 1});
    AddSignature(&model, "\n# inputs\np_s: PARAMETER target='s'\nx: USER_INPUT\n");
    AddFoldedFrom(&model, "select", "['s', 'val_1']");
    const char* kArguments[] = {"%x, %select", "%m0, %select_1", "%m1, %select"};
    for (int i = 0; i < 3; ++i) {
      const std::string out = StrCat("m", i);
      onnx::NodeProto* node = AddNode(&model, "Mul", {i == 0 ? "x" : StrCat("m", i - 1), "select"}, {out});
      AddFx(node, out, "mul.Tensor", kArguments[i]);
      AddScopes(node, "['', '" + out + "']");
    }
    AddOutput(&model, "m2");
    const auto imported = ImportModel(model, {.training = true});
    ASSERT_TRUE(imported.ok()) << imported.status();
    EXPECT_EQ(WeightNames(*imported), fresh ? (Names{"select", "select_1"}) : (Names{"select"}))
        << "equal numbers that were drawn are those of one row";
    for (const ImportedWeight& weight : imported->weights) EXPECT_EQ(weight.alias, "s");
  }
}

// The biases of three attentions of a fresh decoder, which the exporter has stored once: the first reads it as it is,
// the others read parts, which one node takes apart for both.
onnx::ModelProto MergedParts() {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 2});
  AddFilled(&model, "a.bias", {4}, 0);
  FillInts(AddInitializer(&model, "sizes", {2}, 7), {2, 2});
  std::string signature = "\n# inputs\nx: USER_INPUT\n";
  for (const std::string module : {"a", "b", "c"})
    StrAppend(&signature, "p_", module, "_bias: PARAMETER target='", module, ".bias'\n");
  AddSignature(&model, signature);
  SetInt(AddNode(&model, "Concat", {"x", "x"}, {"wide"}), "axis", 1);
  AddFx(AddNode(&model, "Add", {"wide", "a.bias"}, {"a.y"}), "add", "add.Tensor", "%wide, %p_a_bias");
  SetInt(AddNode(&model, "Split", {"a.bias", "sizes"}, {"part_0", "part_1"}, "split"), "axis", 0);
  std::string last = "x";
  int number = 0;
  for (const std::string module : {"b", "c"}) {
    for (const std::string part : {"part_0", "part_1"}) {
      const std::string out = StrCat(module, ".", part);
      onnx::NodeProto* sum = AddNode(&model, "Add", {last, part}, {out});
      AddFx(sum, out, "add.Tensor", StrCat("%", last, ", %getitem_", number++));
      AddScopes(sum, StrCat("['', '", module, "', '", out, "']"));
      last = out;
    }
  }
  SetInt(AddNode(&model, "Concat", {"a.y", last}, {"y"}), "axis", 1);
  AddOutput(&model, "y");
  return model;
}

TEST(TorchExport, MergedPartsOfDifferentModulesAreSplit) {
  EXPECT_EQ(TrainingWeightNames(MergedParts()), (Names{"a.bias", "b.bias", "c.bias"}));
  const auto split = RoundTrip(MergedParts(), {{"a.bias", Floats({4}, {1, 2, 3, 4})},
                                               {"b.bias", Floats({4}, {5, 6, 7, 8})},
                                               {"c.bias", Floats({4}, {9, 10, 11, 12})}});
  ASSERT_TRUE(split.ok()) << split.status();
  std::map<std::string, std::string> read;  // first inputs of the nodes, and second ones of sums, by output
  for (const auto& node : split->graph().node()) {
    for (const std::string& output : node.output()) read[output] = node.input(node.op_type() == "Add" ? 1 : 0);
  }
  EXPECT_EQ(read["a.y"], "a.bias");
  EXPECT_EQ(read[read["b.part_0"]], "b.bias");
  EXPECT_EQ(read[read["b.part_1"]], "b.bias");
  EXPECT_EQ(read[read["c.part_0"]], "c.bias");
  EXPECT_EQ(read[read["c.part_1"]], "c.bias");
  EXPECT_EQ(read["b.part_1"], "part_1");
  EXPECT_EQ(read["c.part_0"], "part_0/c");
}

TEST(TorchExport, CopiesOfNodesGetNamesThatTheModelDoesNotUse) {
  onnx::ModelProto model = MergedParts();
  AddNode(&model, "Relu", {"x"}, {"part_0/c"});
  AddOutput(&model, "part_0/c");
  const auto split = RoundTrip(model, {{"c.bias", Floats({4}, {9, 10, 11, 12})}});
  ASSERT_TRUE(split.ok()) << split.status();
  std::map<std::string, std::string> operators;  // by output
  for (const auto& node : split->graph().node()) {
    for (const std::string& output : node.output()) EXPECT_TRUE(operators.emplace(output, node.op_type()).second);
  }
  EXPECT_EQ(operators["part_0/c"], "Relu");
  EXPECT_EQ(operators["part_0/c_2"], "Split");
}

// A norm without parameters, one with fresh ones, and one that multiplies by gamma + 1 where gamma is fresh: the
// exporter stores ones once. A factor of 1 is not in the file.
TEST(TorchExport, OnesOfTheProgramAreNoParameters) {
  for (const bool with_weight : {true, false}) {
    onnx::ModelProto model = NewModel(17);
    AddInput(&model, "x", {2, 4});
    const std::string ones = with_weight ? "n.weight" : "val_3";
    AddFilled(&model, ones, {4}, 1);
    if (!with_weight) AddFoldedFrom(&model, ones, "['val_1']");
    AddSignature(&model, StrCat("\n# inputs\n", with_weight ? "p_n_weight: PARAMETER target='n.weight'\n" : "",
                                "p_g_gamma: PARAMETER target='g.gamma'\np_scale: PARAMETER target='scale'\n"
                                "x: USER_INPUT\n"));
    AddFx(AddNode(&model, "LayerNormalization", {"x", ones}, {"a"}), "layer_norm", "layer_norm.default",
          "%mul_7, [4], None, None");  // x · scale
    if (with_weight)
      AddFx(AddNode(&model, "LayerNormalization", {"a", ones}, {"b"}), "layer_norm_1", "layer_norm.default",
            "%layer_norm, [4], %p_n_weight, None");
    onnx::NodeProto* product = AddNode(&model, "Mul", {with_weight ? "b" : "a", ones}, {"y"});
    AddFx(product, "mul", "mul.Tensor", with_weight ? "%layer_norm_1, %add_2" : "%layer_norm, %add_2");
    AddScopes(product, "['', 'g', 'mul']");
    AddOutput(&model, "y");
    const auto imported = ImportModel(model, {.training = true});
    ASSERT_TRUE(imported.ok()) << imported.status();
    EXPECT_EQ(WeightNames(*imported),
              with_weight ? (Names{"g.gamma", "n.weight", "n.weight.constant"}) : (Names{"val_3", "val_3.constant"}));
    for (const ImportedWeight& weight : imported->weights)
      EXPECT_EQ(weight.fixed != FixedWeight::kNo, weight.name.ends_with(".constant")) << weight.name;
    for (const std::string text : {"from 'g.gamma'", "nothing in the file reads: 1 ('scale')"})
      EXPECT_NE(absl::StrJoin(imported->notes, "\n").find(text), std::string::npos) << text;
  }
}

// addcmul(bias, weight, x) of two modules, whose views of a fresh scale and bias, all zeros, became one initializer. It
// is called after the first bias.
TEST(TorchExport, MergedScalesAndBiasesOfOneModuleAreSplitByRole) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 4});
  AddFilled(&model, "view", {1, 4}, 0);
  AddSignature(&model,
               "\n# inputs\np_n1_weight: PARAMETER target='n1.weight'\np_n1_bias: PARAMETER target='n1.bias'\n"
               "p_n2_weight: PARAMETER target='n2.weight'\np_n2_bias: PARAMETER target='n2.bias'\nx: USER_INPUT\n");
  AddFoldedFrom(&model, "view", "['n1.bias', 'val_12']");
  const auto add = [&](const std::string& in, const std::string& module, const std::string& fx,
                       const std::string& args) {
    onnx::NodeProto* product = AddNode(&model, "Mul", {"view", in}, {fx + "_product"});
    onnx::NodeProto* sum = AddNode(&model, "Add", {"view", fx + "_product"}, {fx});
    for (onnx::NodeProto* node : {product, sum}) {
      AddFx(node, fx, "addcmul.default", args);
      AddScopes(node, StrCat("['', '", module, "', '", fx, "']"));
    }
  };
  add("x", "n1", "addcmul", "%view, %view_1, %x");
  add("addcmul", "n2", "y", "%view_2, %view_3, %addcmul");
  AddOutput(&model, "y");
  EXPECT_EQ(TrainingWeightNames(model), (Names{"n1.weight", "n2.bias", "n2.weight", "view"}));
}

// Two tokens of zeros, which the exporter has merged; one Concat reads both. A token that the program reads twice stays
// one.
TEST(TorchExport, MergedTokensOfOneModuleAreSplit) {
  const auto names = [](const std::string& args) {
    onnx::ModelProto model = NewModel(17);
    AddInput(&model, "x", {1, 2, 4});
    AddFilled(&model, "expand", {1, 1, 4}, 0);
    AddSignature(&model,
                 "\n# inputs\np_e_cls: PARAMETER target='e.cls'\np_e_dist: PARAMETER target='e.dist'\n"
                 "x: USER_INPUT\n");
    AddFoldedFrom(&model, "expand", "['e.cls', 'val_1']");
    onnx::NodeProto* concat = AddNode(&model, "Concat", {"expand", "expand", "x"}, {"y"});
    SetInt(concat, "axis", 1);
    AddFx(concat, "cat", "cat.default", args);
    AddScopes(concat, "['', 'e', 'cat']");
    AddOutput(&model, "y");
    return WeightNames(*ImportModel(model, {.training = true}));
  };
  EXPECT_EQ(names("[%expand, %expand_1, %x], 1"), (Names{"e.dist", "expand"}));
  EXPECT_EQ(names("[%expand, %expand, %x], 1"), (Names{"expand"}));
}

// The same where the tokens are expanded to a free batch: the exporter has merged the nodes that do it, too.
onnx::ModelProto ExpandedTokens(const std::string& args) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {1, 2, 4});
  AddFilled(&model, "e.cls", {1, 1, 4}, 0);
  FillInts(AddInitializer(&model, "shape", {3}, 7), {1, 1, 4});
  std::string signature = "\n# inputs\nx: USER_INPUT\n";
  for (const std::string token : {"cls", "dist", "mask"})
    StrAppend(&signature, "p_e_", token, ": PARAMETER target='e.", token, "'\n");
  AddSignature(&model, signature);
  onnx::NodeProto* expand = AddNode(&model, "Expand", {"e.cls", "shape"}, {"expand"});
  AddFx(expand, "expand", "expand.default", "%p_e_cls, [1, -1, -1]");
  AddScopes(expand, "['', 'e', 'expand']");
  onnx::NodeProto* concat = AddNode(&model, "Concat", {"expand", "expand", "expand", "x"}, {"y"});
  SetInt(concat, "axis", 1);
  AddFx(concat, "cat", "cat.default", args);
  AddScopes(concat, "['', 'e', 'cat']");
  AddOutput(&model, "y");
  return model;
}

TEST(TorchExport, MergedExpansionsOfTokensAreSplit) {
  const onnx::ModelProto model = ExpandedTokens("[%expand, %expand_1, %expand_2, %x], 1");
  EXPECT_EQ(TrainingWeightNames(model), (Names{"e.cls", "e.dist", "e.mask"}));
  EXPECT_EQ(TrainingWeightNames(ExpandedTokens("[%expand, %expand_1, %expand_1, %x], 1")), (Names{"e.cls"}))
      << "which of the two it is, nothing tells";
  const auto split =
      RoundTrip(model, {{"e.dist", Floats({1, 1, 4}, {1, 2, 3, 4})}, {"e.mask", Floats({1, 1, 4}, {5, 6, 7, 8})}});
  ASSERT_TRUE(split.ok()) << split.status();
  const auto& inputs = split->graph().node(split->graph().node_size() - 1).input();
  EXPECT_EQ(Names(inputs.begin(), inputs.end()), (Names{"expand", "expand/e.dist", "expand/e.mask", "x"}));
}

// A bias that was merged with that of another module is read by a node without metadata.
TEST(TorchExport, NodesWithoutMetadataReadWhatNobodyElseReads) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 4});
  AddFilled(&model, "a.bias", {4}, 0);
  AddSignature(&model,
               "\n# inputs\np_a_bias: PARAMETER target='a.bias'\np_b_bias: PARAMETER target='b.bias'\nx: USER_INPUT\n");
  AddFx(AddNode(&model, "Add", {"x", "a.bias"}, {"h"}), "add", "add.Tensor", "%x, %p_a_bias");
  AddNode(&model, "Mul", {"h", "a.bias"}, {"y"});
  AddOutput(&model, "y");
  EXPECT_EQ(TrainingWeightNames(model), (Names{"a.bias", "b.bias"}));
}

TEST(TorchExport, ExpressionsThatTrainAsValuesAreNoted) {
  const auto imported = ImportModel(Expressions(), {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  const auto noted = [&](const std::string& text) {
    return std::ranges::any_of(imported->notes, [&](const std::string& note) { return note.find(text) != note.npos; });
  };
  EXPECT_TRUE(noted("the exporter computed 'sum_1' from 'a', 'b': it trains as a value of its own"));
  EXPECT_TRUE(noted("the exporter computed 'sub' from 'a': it trains as a value of its own"));
  EXPECT_FALSE(noted("'add_6' from")) << "the only thing that the file holds of n1.weight";
}

// Expressions of the equal biases of two attentions, of which functional products read one each.
TEST(TorchExport, MergedExpressionsOfBiasesAreSplitByModule) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 4});
  AddFilled(&model, "slice_scatter", {4}, 0);
  AddSignature(&model,
               "\n# inputs\np_a_weight: PARAMETER target='a.qkv.weight'\np_a_bias: PARAMETER target='a.qkv.bias'\n"
               "p_b_weight: PARAMETER target='b.qkv.weight'\np_b_bias: PARAMETER target='b.qkv.bias'\n"
               "x: USER_INPUT\n");
  AddFoldedFrom(&model, "slice_scatter", "['a.qkv.bias', 'val_1']");
  for (const std::string module : {"a", "b"}) {
    const std::string in = module == "a" ? "x" : "a.y", product = module + ".product";
    AddFoldedFrom(&model, module + ".w", "['" + module + ".qkv.weight']");
    FillFloats(AddInitializer(&model, module + ".w", {4, 4}), std::vector<float>(16, module == "a" ? 1.0F : 2.0F));
    for (onnx::NodeProto* node : {AddNode(&model, "MatMul", {in, module + ".w"}, {product}),
                                  AddNode(&model, "Add", {product, "slice_scatter"}, {module + ".y"})}) {
      AddFx(node, "linear_" + module, "linear.default",
            StrCat("%", in, ", %p_", module, "_weight, %slice_scatter", module == "a" ? "" : "_9"));
      AddScopes(node, StrCat("['', '", module, "', 'linear_", module, "']"));
    }
  }
  AddOutput(&model, "b.y");
  EXPECT_EQ(TrainingWeightNames(model), (Names{"a.w", "b.qkv.bias", "b.w", "slice_scatter"}));
}

// The joined biases of two attentions, all zeros, of which the exporter has kept one.
TEST(TorchExport, MergedExpressionsOfSeveralParametersAreSplit) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 4});
  AddFilled(&model, "cat_1", {4}, 0);
  std::string signature = "\n# inputs\nx: USER_INPUT\n";
  for (const char* bias : {"a.q", "a.v", "b.q", "b.v"})
    StrAppend(&signature, "p_", absl::StrReplaceAll(bias, {{".", "_"}}), ": PARAMETER target='", bias, "'\n");
  AddSignature(&model, signature);
  AddFoldedFrom(&model, "cat_1", "['a.q', 'a.v']");
  AddFx(AddNode(&model, "Add", {"x", "cat_1"}, {"add"}), "add", "add.Tensor", "%x, %cat_1");
  AddFx(AddNode(&model, "Add", {"add", "cat_1"}, {"y"}), "add_1", "add.Tensor", "%add, %cat_4");
  AddOutput(&model, "y");
  EXPECT_EQ(TrainingWeightNames(model), (Names{"cat_1", "cat_4"}));
}

// Normalizations of one value, which were equal in a fresh model: the exporter has made them one node. The first reader
// has the value of "layer_norm", the others that of their own.
onnx::ModelProto MergedNorms(const std::vector<std::string>& own = {"layer_norm_1"}) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 4});
  AddFilled(&model, "l.n1.weight", {4}, 1);
  AddFilled(&model, "l.n1.bias", {4}, 0);
  std::string signature = "\n# inputs\nx: USER_INPUT\n";
  for (size_t n = 1; n <= own.size() + 1; ++n) {
    for (const std::string part : {"weight", "bias"})
      signature += StrCat("p_l_n", n, "_", part, ": PARAMETER target='l.n", n, ".", part, "'\n");
  }
  AddSignature(&model, signature);
  onnx::NodeProto* norm = AddNode(&model, "LayerNormalization", {"x", "l.n1.weight", "l.n1.bias"}, {"layer_norm"});
  AddFx(norm, "layer_norm", "layer_norm.default", "%x, [4], %p_l_n1_weight, %p_l_n1_bias");
  AddScopes(norm, "['', 'l', 'l.n1', 'layer_norm']");
  AddFx(AddNode(&model, "Tanh", {"layer_norm"}, {"tanh"}), "tanh", "tanh.default", "%layer_norm");
  std::vector<std::string> sum = {"tanh"};
  for (const std::string& norm_of_reader : own) {
    sum.push_back("sigmoid_of_" + norm_of_reader);
    AddFx(AddNode(&model, "Sigmoid", {"layer_norm"}, {sum.back()}), sum.back(), "sigmoid.default",
          "%" + norm_of_reader);
  }
  AddNode(&model, "Sum", sum, {"y"});
  AddOutput(&model, "y");
  return model;
}

TEST(TorchExport, MergedNodesOfDifferentModulesAreSplit) {
  EXPECT_EQ(TrainingWeightNames(MergedNorms()), (Names{"l.n1.bias", "l.n1.weight", "l.n2.bias", "l.n2.weight"}));
}

// By number: "layer_norm_10" comes behind "layer_norm_9", and "n11" behind "n2".
TEST(TorchExport, MergedNodesAreSplitInTheirOrder) {
  std::vector<std::string> own;
  std::map<std::string, HostTensor> weights;
  for (int i = 0; i < 10; ++i) {
    own.push_back(StrCat("layer_norm_", i + 3));
    weights.emplace(StrCat("l.n", i + 2, ".weight"), Floats({4}, {1, 2, 3, i + 4.0}));
  }
  const auto split = RoundTrip(MergedNorms(own), weights);
  ASSERT_TRUE(split.ok()) << split.status();
  int readers = 0;
  for (const onnx::NodeProto& node : split->graph().node()) {
    if (node.op_type() != "Sigmoid") continue;
    ++readers;
    const std::string number = node.output(0).substr(std::string("sigmoid_of_layer_norm_").size());
    EXPECT_EQ(node.input(0), StrCat("layer_norm/l.n", std::stoi(number) - 1));
  }
  EXPECT_EQ(readers, 10);
}

// The last norm of a block and the first of the next one read the same value.
TEST(TorchExport, MergedNodesBelongToTheModulesOfTheirReaders) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 4});
  AddFilled(&model, "a.out.weight", {4}, 1);
  AddFilled(&model, "a.out.bias", {4}, 0);
  std::string signature = "\n# inputs\nx: USER_INPUT\n";
  for (const std::string module : {"a.out", "a.unused", "b.in"}) {
    for (const std::string part : {"weight", "bias"}) {
      const std::string name = StrCat(module, ".", part);
      StrAppend(&signature, "p_", absl::StrReplaceAll(name, {{".", "_"}}), ": PARAMETER target='", name, "'\n");
    }
  }
  AddSignature(&model, signature);
  onnx::NodeProto* norm = AddNode(&model, "LayerNormalization", {"x", "a.out.weight", "a.out.bias"}, {"layer_norm"});
  AddFx(norm, "layer_norm", "layer_norm.default", "%x, [4], %p_a_out_weight, %p_a_out_bias");
  AddScopes(norm, "['', 'a', 'a.out', 'layer_norm']");
  AddFx(AddNode(&model, "Tanh", {"layer_norm"}, {"tanh"}), "tanh", "tanh.default", "%layer_norm");
  onnx::NodeProto* reader = AddNode(&model, "Sigmoid", {"layer_norm"}, {"sigmoid"});
  AddFx(reader, "sigmoid", "sigmoid.default", "%layer_norm_1");
  AddScopes(reader, "['', 'b', 'b.act', 'sigmoid']");
  AddNode(&model, "Sum", {"tanh", "sigmoid"}, {"y"});
  AddOutput(&model, "y");
  EXPECT_EQ(TrainingWeightNames(model), (Names{"a.out.bias", "a.out.weight", "b.in.bias", "b.in.weight"}));
}

TEST(TorchExport, MergedNodesAreCopiedOnExportWhereWeightsDiffer) {
  const auto same = RoundTrip(MergedNorms(), {{"l.n2.weight", Floats({4}, {1, 1, 1, 1})}});
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->graph().node_size(), 4);
  const auto split = RoundTrip(MergedNorms(), {{"l.n2.weight", Floats({4}, {1, 2, 3, 4})}});
  ASSERT_TRUE(split.ok()) << split.status();
  ASSERT_EQ(split->graph().node_size(), 5);
  EXPECT_EQ(split->graph().node(0).input(1), "l.n1.weight");
  EXPECT_EQ(split->graph().node(1).input(1), "l.n2.weight");
  EXPECT_EQ(split->graph().node(1).input(2), "l.n1.bias") << "still equal";
  EXPECT_EQ(split->graph().node(2).input(0), "layer_norm");
  EXPECT_EQ(split->graph().node(3).input(0), split->graph().node(1).output(0));
}

// Gates; values that saturate have no argument.
TEST(TorchExport, ArgumentsOfComputedGatesAreTrained) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 2});
  FillFloats(AddInitializer(&model, "sigmoid_1", {2}), {0.5F, 0.75F});
  FillFloats(AddInitializer(&model, "tanh", {}), {0.25F});
  FillFloats(AddInitializer(&model, "tanh_1", {2}), {0.5F, 1});
  AddSignature(&model,
               "\n# inputs\np_g: PARAMETER target='g'\np_a: PARAMETER target='a'\np_b: PARAMETER target='b'\n"
               "x: USER_INPUT\n");
  std::string before = "x";
  for (const auto& [weight, source] : {std::pair("sigmoid_1", "g"), {"tanh", "a"}, {"tanh_1", "b"}}) {
    AddFoldedFrom(&model, weight, StrCat("['", source, "']"));
    const std::string out = StrCat("m_", source);
    AddFx(AddNode(&model, "Mul", {before, weight}, {out}), out, "mul.Tensor", StrCat("%", before, ", %", weight));
    before = out;
  }
  AddOutput(&model, before);
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(WeightNames(*imported), (Names{"sigmoid_1.logit", "tanh.atanh", "tanh_1"}));
  const HostTensor& gate = FindWeight(*imported, "sigmoid_1.logit")->value;
  EXPECT_EQ(gate.At(0), 0);
  EXPECT_NEAR(gate.At(1), std::log(3.0), 1e-6);
  const auto exported = RoundTrip(model, {{"sigmoid_1.logit", Floats({2}, {0, 100})}, {"tanh.atanh", Floats({}, {1})}});
  ASSERT_TRUE(exported.ok()) << exported.status();
  const auto* gates = reinterpret_cast<const float*>(exported->graph().initializer(0).raw_data().data());
  EXPECT_EQ(std::vector<float>(gates, gates + 2), (std::vector<float>{0.5F, 1}));
  const auto* scale = reinterpret_cast<const float*>(exported->graph().initializer(1).raw_data().data());
  EXPECT_FLOAT_EQ(scale[0], std::tanh(1.0F));
}

// The temperature of a contrastive model; −exp(a) of a state space.
TEST(TorchExport, LogarithmsOfComputedExponentialsAreTrained) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 4});
  FillFloats(AddInitializer(&model, "exp", {}), {4});
  FillFloats(AddInitializer(&model, "neg_1", {4}), {-1, -2, -4, -0.5F});
  AddSignature(&model, "\n# inputs\np_scale: PARAMETER target='scale'\np_a: PARAMETER target='a'\nx: USER_INPUT\n");
  AddFoldedFrom(&model, "exp", "['scale']");
  AddFoldedFrom(&model, "neg_1", "['a', 'exp_1']");
  AddFx(AddNode(&model, "Mul", {"x", "exp"}, {"h"}), "h", "mul.Tensor", "%x, %exp");
  AddFx(AddNode(&model, "Mul", {"h", "neg_1"}, {"y"}), "y", "mul.Tensor", "%h, %neg_1");
  AddOutput(&model, "y");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(WeightNames(*imported), (Names{"exp.log", "neg_1.log"}));
  const ImportedWeight* a = FindWeight(*imported, "neg_1.log");
  EXPECT_EQ(a->alias, "a");
  EXPECT_FLOAT_EQ(static_cast<float>(a->value.At(2)), std::log(4.0F));
  const auto exported = RoundTrip(model, {{"exp.log", Floats({}, {1})}, {"neg_1.log", Floats({4}, {0, 1, 2, 3})}});
  ASSERT_TRUE(exported.ok()) << exported.status();
  const auto* scale = reinterpret_cast<const float*>(exported->graph().initializer(0).raw_data().data());
  const auto* rates = reinterpret_cast<const float*>(exported->graph().initializer(1).raw_data().data());
  EXPECT_FLOAT_EQ(scale[0], std::exp(1.0F));
  EXPECT_FLOAT_EQ(rates[3], -std::exp(3.0F));
}

// The step sizes of a state space. The softplus of any number is positive.
TEST(TorchExport, ArgumentsOfComputedSoftplusAreTrained) {
  const auto make_model = [](const std::vector<float>& steps) {
    onnx::ModelProto model = NewModel(17);
    AddInput(&model, "x", {2, 3});
    FillFloats(AddInitializer(&model, "softplus", {3}), steps);
    AddSignature(&model, "\n# inputs\np_dt: PARAMETER target='dt'\nx: USER_INPUT\n");
    AddFoldedFrom(&model, "softplus",
                  "['beta', 'beta_0', 'beta_0_cast', 'beta_cast', 'dt', 'self_scaled', 'softplus_2', 'threshold', "
                  "'threshold_cast', 'tmp', 'tmp_1']");
    AddFx(AddNode(&model, "Mul", {"x", "softplus"}, {"y"}), "y", "mul.Tensor", "%x, %softplus");
    AddOutput(&model, "y");
    return model;
  };
  const onnx::ModelProto model = make_model({std::log1p(std::exp(-4.0F)), std::log(2.0F), 50});
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(WeightNames(*imported), Names{"softplus.softplus_inverse"});
  const WeightForm form = DescribeForm(**LoadModel(model), imported->weights[0].name);
  EXPECT_EQ(form.row, "function of a parameter");
  EXPECT_EQ(form.why, "the exporter computed softplus(p) of one parameter");
  const HostTensor& dt = imported->weights[0].value;
  EXPECT_NEAR(dt.At(0), -4, 1e-5);
  EXPECT_NEAR(dt.At(1), 0, 1e-6);
  EXPECT_NEAR(dt.At(2), 50, 1e-5);
  const auto exported = RoundTrip(model, {{"softplus.softplus_inverse", Floats({3}, {0, -4, 100})}});
  ASSERT_TRUE(exported.ok()) << exported.status();
  const auto* steps = reinterpret_cast<const float*>(exported->graph().initializer(0).raw_data().data());
  EXPECT_FLOAT_EQ(steps[0], std::log(2.0F));
  EXPECT_FLOAT_EQ(steps[1], std::log1p(std::exp(-4.0F)));
  EXPECT_FLOAT_EQ(steps[2], 100);
  EXPECT_EQ(WeightNames(*ImportModel(make_model({-1, 1, 2}), {.training = true})), Names{"softplus"});
}

// A class token of zeros that was merged with another, after expansion to the batch.
TEST(TorchExport, MergedTokensThatWereExpandedAreTrainedOnce) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 3, 4});
  AddFilled(&model, "expand", {2, 1, 4}, 0);
  AddSignature(&model,
               "\n# inputs\np_e_cls: PARAMETER target='e.cls'\np_e_dist: PARAMETER target='e.dist'\n"
               "x: USER_INPUT\n");
  AddFoldedFrom(&model, "expand", "['e.cls', 'val_1']");
  onnx::NodeProto* concat = AddNode(&model, "Concat", {"expand", "expand", "x"}, {"y"});
  SetInt(concat, "axis", 1);
  AddFx(concat, "cat", "cat.default", "[%expand, %expand_1, %x], 1");
  AddScopes(concat, "['', 'e', 'cat']");
  AddOutput(&model, "y");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(WeightNames(*imported), (Names{"e.dist.table", "expand.table"}));
  const auto exported = RoundTrip(model, {{"e.dist.table", Floats({1, 4}, {1, 2, 3, 4})}});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->graph().node(0).input(1), "e.dist");
  const auto* values = reinterpret_cast<const float*>(exported->graph().initializer(1).raw_data().data());
  EXPECT_EQ(values[7], 4);
}

// What a weight was folded from tells whether it still has the parameter's numbers.
TEST(TorchExport, ExpressionsOfOneParameterAreNotedByTheirOperators) {
  const auto noted = [](const std::string& name, const std::string& sources, float value) {
    onnx::ModelProto model = NewModel(17);
    AddInput(&model, "x", {2, 4});
    FillFloats(AddInitializer(&model, name, {4}), {value, 2 * value, 3 * value, 4 * value});
    AddSignature(&model,
                 "\n# inputs\np_w: PARAMETER target='w'\nb_t: BUFFER target='t' persistent=True\nx: USER_INPUT\n");
    AddFoldedFrom(&model, name, sources);
    AddFx(AddNode(&model, "Mul", {"x", name}, {"y"}), "y", "mul.Tensor", "%x, %" + name);
    AddOutput(&model, "y");
    const auto imported = ImportModel(model, {.training = true});
    EXPECT_TRUE(imported.ok()) << imported.status();
    return std::ranges::any_of(imported->notes, [](const std::string& note) {
      return note.find("' from 'w': it trains as a value of its own") != note.npos;
    });
  };
  EXPECT_TRUE(noted("exp_2", "['clamp', 'w', 'val_92']", 1));
  EXPECT_TRUE(noted("slice_scatter", "['clone_2', 'w', 'val_13']", 1));
  EXPECT_TRUE(noted("view_1", "['exp_2', 'mul', 'w', 'val_92']", 1));
  EXPECT_FALSE(noted("view_1", "['exp_2', 'w', 'val_92']", 1)) << "its logarithm is trained";
  EXPECT_TRUE(noted("view_1", "['exp_2', 'neg_1', 'w', 'val_92']", 1)) << "exp(-w), which has no such form";
  EXPECT_TRUE(noted("sigmoid_1", "['index_2', 'w', 't']", 1)) << "of rows that were looked up";
  EXPECT_TRUE(noted("exp_1", "['w']", -1)) << "exponentials are positive: no logarithm can be trained";
  EXPECT_TRUE(noted("val_3", "['w', 't', 'val_2']", 1)) << "a product with a buffer";
  EXPECT_FALSE(noted("val_3", "['w', 'val_2']", 1)) << "a reshaped weight";
  EXPECT_FALSE(noted("view_1", "['w', 'val_2']", 1));
  EXPECT_FALSE(noted("index_1", "['w', 't']", 1));
  EXPECT_TRUE(noted("index_1", "['w', 't']", 0)) << "rows of zeros, whose copies cannot be told";
}

TEST(TorchExport, ASplitWeightThatWasNotTrainedKeepsTheValueOfTheFile) {
  const auto exported = RoundTrip(TwoNorms("n2"), {{"n1.weight", Floats({4}, {1, 2, 3, 4})}});
  ASSERT_TRUE(exported.ok()) << exported.status();
  ASSERT_EQ(exported->graph().node(1).input(1), "n2.weight");
  const auto& added = exported->graph().initializer(2);
  ASSERT_EQ(added.name(), "n2.weight");
  const auto* values = reinterpret_cast<const float*>(added.raw_data().data());
  EXPECT_TRUE(std::all_of(values, values + 4, [](float v) { return v == 1; }));
}

// x/std·gamma·scale·derived + Gather(table): a buffer, parameters of one element, a constant of the exporter and a
// folded parameter.
onnx::ModelProto Kinds() {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 4});
  AddFilled(&model, "std", {4}, 2);
  AddFilled(&model, "gamma", {}, 1.5);
  AddFilled(&model, "val_3", {1}, 0.5);
  FillFloats(AddInitializer(&model, "val_7", {4, 3}), {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  AddSignature(&model,
               "\n# inputs\np_gamma: PARAMETER target='gamma'\np_fc_weight: PARAMETER target='fc.weight'\n"
               "b_std: BUFFER target='std' persistent=True\nx: USER_INPUT\n");
  AddFoldedFrom(&model, "val_3", "['val_1', 'val_2']");
  AddFoldedFrom(&model, "val_7", "['fc.weight']");
  AddFx(AddNode(&model, "Mul", {"x", "std"}, {"a"}), "mul", "mul.Tensor", "%x, %b_std");
  AddFx(AddNode(&model, "Mul", {"a", "gamma"}, {"b"}), "mul_1", "mul.Tensor", "%mul, %p_gamma");
  AddFx(AddNode(&model, "Mul", {"b", "val_3"}, {"c"}), "sdpa", "mul.Tensor", "%mul_1");
  AddFx(AddNode(&model, "MatMul", {"c", "val_7"}, {"y"}), "linear", "linear.default", "%sdpa, %p_fc_weight");
  AddOutput(&model, "y");
  return model;
}

TEST(TorchExport, BuffersAndDerivedConstantsAreFixedScalarsAreNot) {
  const auto imported = ImportModel(Kinds(), {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(WeightNames(*imported), (Names{"gamma", "std", "val_7"}));
  EXPECT_EQ(FindWeight(*imported, "gamma")->fixed, FixedWeight::kNo);
  EXPECT_EQ(FindWeight(*imported, "std")->fixed, FixedWeight::kBuffer);
  EXPECT_EQ(FindWeight(*imported, "val_7")->alias, "fc.weight");
  EXPECT_EQ(imported->graph.FindInput("gamma")->kind, InputKind::kParameter);
}

TEST(TorchExport, DerivedFactorsAreWeightsWhereTheyMayBeTrained) {
  const auto imported = ImportModel(Kinds(), {.training = true, .constant_factors = false});
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_NE(FindWeight(*imported, "val_3"), nullptr);
  EXPECT_EQ(FindWeight(*imported, "val_3")->fixed, FixedWeight::kConstant);
}

TEST(TorchExport, ParametersThatTheFileDoesNotHoldAreNoted) {
  onnx::ModelProto model = TwoNorms("n2");
  onnx::NodeProto* relu = AddNode(&model, "Relu", {"y"}, {"z"});
  AddFx(relu, "linear", "linear.default", "%layer_norm_1, %p_fc_bias");
  AddOutput(&model, "z");
  model.mutable_graph()->mutable_unknown_fields()->Clear();
  AddSignature(&model,
               "p_n1_weight: PARAMETER target='n1.weight'\np_n1_bias: PARAMETER target='n1.bias'\n"
               "p_n2_weight: PARAMETER target='n2.weight'\np_n2_bias: PARAMETER target='n2.bias'\n"
               "p_fc_bias: PARAMETER target='fc.bias'\np_unused: PARAMETER target='unused'\n");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  const auto names_bias = [](const std::string& n) { return n.find("does not hold: 1 ('fc.bias')") != n.npos; };
  EXPECT_TRUE(std::ranges::any_of(imported->notes, names_bias));
}

// Two calls of one linear layer, whose bias the exporter has removed, and a convolution that never had one.
onnx::ModelProto RemovedBias(const std::string& bias = "fc.bias") {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 3});
  FillFloats(AddInitializer(&model, "fc.weight", {3, 3}), {1, 2, 4, 4, 5, 6, 7, 8, 8});
  AddSignature(
      &model, "p_fc_weight: PARAMETER target='fc.weight'\np_fc_bias: PARAMETER target='" + bias + "'\nx: USER_INPUT\n");
  AddFx(AddNode(&model, "Gemm", {"x", "fc.weight"}, {"a"}), "linear", "linear.default", "%x, %p_fc_weight, %p_fc_bias");
  AddFx(AddNode(&model, "Gemm", {"a", "fc.weight"}, {"y"}), "linear_1", "linear.default",
        "%linear, %p_fc_weight, %p_fc_bias");
  AddOutput(&model, "y");
  return model;
}

TEST(TorchExport, BiasesThatWereZerosAreTrained) {
  const auto imported = ImportModel(RemovedBias(), {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(WeightNames(*imported), (Names{"fc.bias", "fc.weight"}));
  EXPECT_EQ(FindWeight(*imported, "fc.bias")->value.shape(), (Shape{3}));
  const auto names_them = [](const std::string& n) { return n.find("removed because they were zeros: 1") != n.npos; };
  EXPECT_TRUE(std::ranges::any_of(imported->notes, names_them));
  EXPECT_EQ(TrainingWeightNames(RemovedBias("shift")), (Names{"fc.weight", "shift"})) << "an argument of linear";
  onnx::ModelProto without = RemovedBias();  // a layer that never had a bias
  for (auto& node : *without.mutable_graph()->mutable_node()) node.mutable_unknown_fields()->Clear();
  EXPECT_EQ(WeightNames(*ImportModel(without, {.training = true})), (Names{"fc.weight"}));
}

TEST(TorchExport, TheExportStoresBiasesThatWereZeros) {
  const HostTensor weight = Floats({3, 3}, {1, 2, 4, 4, 5, 6, 7, 8, 8});
  const auto same = RoundTrip(RemovedBias(), {{"fc.weight", weight}, {"fc.bias", Floats({3}, {0, 0, 0})}});
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->graph().node(0).input_size(), 2);
  EXPECT_EQ(same->graph().initializer_size(), 1);
  const auto trained = RoundTrip(RemovedBias(), {{"fc.weight", weight}, {"fc.bias", Floats({3}, {1, 2, 3})}});
  ASSERT_TRUE(trained.ok()) << trained.status();
  for (const auto& node : trained->graph().node()) {
    ASSERT_EQ(node.input_size(), 3);
    EXPECT_EQ(node.input(2), "fc.bias");
  }
  ASSERT_EQ(trained->graph().initializer_size(), 2);
  EXPECT_EQ(trained->graph().initializer(1).name(), "fc.bias");
}

// Cloned layers, whose weights the exporter has merged, and whose biases it has removed.
TEST(TorchExport, BiasesOfMergedWeightsAreStored) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 2});
  const HostTensor weight = Floats({2, 2}, {1, 2, 4, 4}), other = Floats({2, 2}, {2, 2, 4, 4});
  FillFloats(AddInitializer(&model, "l.0.weight", {2, 2}), {1, 2, 4, 4});
  AddSignature(&model,
               "p_0_w: PARAMETER target='l.0.weight'\np_0_b: PARAMETER target='l.0.bias'\n"
               "p_1_w: PARAMETER target='l.1.weight'\np_1_b: PARAMETER target='l.1.bias'\nx: USER_INPUT\n");
  AddFx(AddNode(&model, "Gemm", {"x", "l.0.weight"}, {"a"}), "linear", "linear.default", "%x, %p_0_w, %p_0_b");
  AddFx(AddNode(&model, "Gemm", {"a", "l.0.weight"}, {"y"}), "linear_1", "linear.default", "%linear, %p_1_w, %p_1_b");
  AddOutput(&model, "y");
  const HostTensor bias = Floats({2}, {1, 2});
  const auto exported =
      RoundTrip(model, {{"l.0.weight", weight}, {"l.1.weight", other}, {"l.0.bias", bias}, {"l.1.bias", bias}});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->graph().initializer_size(), 4);
  EXPECT_EQ(exported->graph().node(1).input(1), "l.1.weight");
  EXPECT_EQ(exported->graph().node(1).input(2), "l.1.bias");
}

// A product whose weight the exporter computed from two parameters (weight normalization), and whose bias it removed.
TEST(TorchExport, BiasesOfComputedWeightsAreTrained) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 2});
  FillFloats(AddInitializer(&model, "mul", {2, 2}), {1, 2, 4, 4});
  AddSignature(&model,
               "p_g: PARAMETER target='fc.g'\np_v: PARAMETER target='fc.v'\np_b: PARAMETER target='fc.in_proj_bias'\n"
               "x: USER_INPUT\n");
  AddFoldedFrom(&model, "mul", "['fc.g', 'fc.v']");
  AddFx(AddNode(&model, "Gemm", {"x", "mul"}, {"y"}), "linear", "linear.default", "%x, %mul, %p_b");
  AddOutput(&model, "y");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(WeightNames(*imported), (Names{"fc.in_proj_bias", "mul"}));
  EXPECT_EQ(FindWeight(*imported, "mul")->alias, "");
}

// w + (round(w·s)/s − w): what is stored is rounded, and trains otherwise.
TEST(TorchExport, RoundedWeightsAreExpressions) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 2});
  FillFloats(AddInitializer(&model, "add_1", {2, 2}), {1, 2, 4, 4});
  AddSignature(&model, "p_w: PARAMETER target='fc.weight'\nx: USER_INPUT\n");
  AddFoldedFrom(&model, "add_1", "['div', 'fc.weight', 'mul', 'round_1', 'sub_1', 'val_0']");
  AddFx(AddNode(&model, "MatMul", {"x", "add_1"}, {"y"}), "linear", "linear.default", "%x, %add_1");
  AddOutput(&model, "y");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(imported->notes,
              testing::Contains(testing::StartsWith("the exporter computed 'add_1' from 'fc.weight'")));
}

TEST(TorchExport, EditsOfARestoredBiasReachItsReaders) {
  const auto loaded = OnnxModel::Load(Save(RemovedBias()));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto edited = (*loaded)->LoadEdited({.tensors = {{"fc.bias", Floats({3}, {1, 2, 3})}}});
  ASSERT_TRUE(edited.ok()) << edited.status();
  const auto imported = Import(**edited, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(FindWeight(*imported, "fc.bias")->value.At(2), 3);
}

int64_t PaddingRow(const absl::StatusOr<ImportedModel>& imported) {
  for (const Node& node : imported->graph.nodes()) {
    if (node.op == "Gather") return node.attrs.Int("padding_idx");
  }
  return -2;
}

// An embedding of five rows; row 3 is zeros.
onnx::ModelProto Embedding() {
  onnx::ModelProto model = NewModel(17);
  model.set_producer_name("pytorch");
  AddInput(&model, "ids", {2, 3}, onnx::TensorProto::INT64);
  FillFloats(AddInitializer(&model, "e.weight", {5, 2}), {1, 2, 4, 4, 5, 6, 0, 0, 9, 9});
  AddNode(&model, "Gather", {"e.weight", "ids"}, {"y"}, "/e/Gather");
  AddOutput(&model, "y");
  return model;
}

TEST(Padding, TheRowOfTheProgramIsNotTrained) {
  onnx::ModelProto model = Embedding();
  AddSignature(&model, "p_e_weight: PARAMETER target='e.weight'\nids: USER_INPUT\n");
  AddFx(model.mutable_graph()->mutable_node(0), "embedding", "embedding.default", "%p_e_weight, %ids, 1");
  EXPECT_EQ(PaddingRow(ImportModel(model, {.training = true})), 1);
  model.mutable_graph()->mutable_node(0)->mutable_unknown_fields()->Clear();
  AddFx(model.mutable_graph()->mutable_node(0), "embedding", "embedding.default", "%p_e_weight, %ids");
  EXPECT_EQ(PaddingRow(ImportModel(model, {.training = true})), -1);
}

TEST(Padding, TheOnlyRowOfZerosIsTakenForIt) {
  onnx::ModelProto model = Embedding();
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(PaddingRow(imported), 3);
  const auto names_row = [](const std::string& n) { return n.find("row 3 of 'e.weight'") != n.npos; };
  EXPECT_TRUE(std::ranges::any_of(imported->notes, names_row));
  EXPECT_EQ(PaddingRow(ImportModel(model, {.training = true, .constant_factors = false})), -1);  // `train` is given
  model.set_producer_name("tf2onnx");
  EXPECT_EQ(PaddingRow(ImportModel(model, {.training = true})), -1);
  model = Embedding();
  FillFloats(model.mutable_graph()->mutable_initializer(0), {1, 2, 0, 0, 5, 6, 0, 0, 9, 9});
  EXPECT_EQ(PaddingRow(ImportModel(model, {.training = true})), -1);
}

TEST(TorchExport, BothFormsOfASignatureAreRead) {
  using Kind = SignatureEntry::Kind;
  const TorchSignature expected = {{"p_fc_weight", {Kind::kParameter, "fc.weight"}},
                                   {"b_mean", {Kind::kBuffer, "mean"}},
                                   {"c_0", {Kind::kConstant, "c"}}};
  EXPECT_EQ(ParseSignature("\n# inputs\np_fc_weight: PARAMETER target='fc.weight'\n"
                           "b_mean: BUFFER target='mean' persistent=True\nc_0: CONSTANT_TENSOR target='c'\n"
                           "x: USER_INPUT\n\n# outputs\nadd: BUFFER_MUTATION target='mean'\ny: USER_OUTPUT\n"),
            expected);
  EXPECT_EQ(ParseSignature("ExportGraphSignature(input_specs=[InputSpec(kind=<InputKind.PARAMETER: 2>, "
                           "arg=TensorArgument(name='p_fc_weight'), target='fc.weight', persistent=None), "
                           "InputSpec(kind=<InputKind.BUFFER: 3>, arg=TensorArgument(name='b_mean'), target='mean', "
                           "persistent=True), InputSpec(kind=<InputKind.CONSTANT_TENSOR: 4>, "
                           "arg=TensorArgument(name='c_0'), target='c', persistent=None), "
                           "InputSpec(kind=<InputKind.USER_INPUT: 1>, arg=TensorArgument(name='x'), target=None, "
                           "persistent=None)], output_specs=[])"),
            expected);
  EXPECT_TRUE(ParseSignature("InputKind.InputKind.PARAMETER name=' target='").empty());
}

TEST(TorchExport, SeveralNodesMayReadOneArgument) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {1, 1, 2, 2});
  AddFilled(&model, "conv.weight", {1, 1, 2, 2}, 3);
  AddFilled(&model, "one", {1, 1, 2, 2}, 1);
  AddSignature(&model, "p_conv_weight: PARAMETER target='conv.weight'\n");
  const std::string args = "%x, %p_conv_weight, None";
  AddFx(AddNode(&model, "Shape", {"conv.weight"}, {"s"}), "conv2d", "conv2d.default", args);
  AddFx(AddNode(&model, "Add", {"conv.weight", "one"}, {"w"}), "conv2d", "conv2d.default", args);
  AddFx(AddNode(&model, "Sub", {"conv.weight", "w"}, {"v"}), "conv2d", "conv2d.default", args);
  AddFx(AddNode(&model, "Conv", {"x", "v"}, {"y"}), "conv2d", "conv2d.default", args);
  AddOutput(&model, "y");
  AddOutput(&model, "s");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(std::ranges::count_if(imported->weights, [](const auto& w) { return w.name.starts_with("conv"); }), 1);
  EXPECT_EQ(FindWeight(*imported, "conv.weight")->fixed, FixedWeight::kNo);
}

// The exporter has merged all four tensors of a fresh batch normalization into two.
// A fresh norm of several nodes, whose scale the exporter merged with that of a layer, and whose own constants with the
// parameters of an activation.
TEST(TorchExport, ScalesOfNormsOfSeveralNodesAreSplit) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 3});
  AddFilled(&model, "scale", {3}, 1);
  AddFilled(&model, "act.scale", {1}, 1);
  AddFilled(&model, "act.bias", {1}, 0);
  AddSignature(&model,
               "p_scale: PARAMETER target='scale'\np_a: PARAMETER target='act.scale'\n"
               "p_b: PARAMETER target='act.bias'\np_norm: PARAMETER target='norm.weight'\nx: USER_INPUT\n");
  const auto add_norm = [&](const char* op, const char* in, const char* weight, const char* out) {
    AddFx(AddNode(&model, op, {in, weight}, {out}), "group_norm", "group_norm.default", "%x, 1, %p_norm, None");
  };
  AddFx(AddNode(&model, "Mul", {"x", "scale"}, {"a"}), "mul", "mul.Tensor", "%x, %p_scale");
  AddFx(AddNode(&model, "Mul", {"a", "act.scale"}, {"b"}), "mul_1", "mul.Tensor", "%mul, %p_a");
  AddFx(AddNode(&model, "Add", {"b", "act.bias"}, {"c"}), "add", "add.Tensor", "%mul_1, %p_b");
  add_norm("Div", "c", "act.scale", "d");
  add_norm("Sub", "d", "act.bias", "e");
  add_norm("Mul", "e", "scale", "y");
  AddOutput(&model, "y");
  EXPECT_EQ(TrainingWeightNames(model), (Names{"act.bias", "act.scale", "norm.weight", "scale"}));
}

TEST(TorchExport, StatisticsMergedWithScalesAreSplit) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 4});
  AddFilled(&model, "bn.weight", {4}, 1);
  AddFilled(&model, "bn.bias", {4}, 0);
  AddSignature(
      &model,
      "p_bn_weight: PARAMETER target='bn.weight'\np_bn_bias: PARAMETER target='bn.bias'\n"
      "b_bn_mean: BUFFER target='bn.mean' persistent=True\nb_bn_var: BUFFER target='bn.var' persistent=True\n");
  AddFx(AddNode(&model, "BatchNormalization", {"x", "bn.weight", "bn.bias", "bn.bias", "bn.weight"}, {"y"}), "bn",
        "batch_norm.default", "%x, %p_bn_weight, %p_bn_bias, %b_bn_mean, %b_bn_var");
  AddOutput(&model, "y");
  EXPECT_EQ(TrainingWeightNames(model), (Names{"bn.bias", "bn.mean", "bn.var", "bn.weight"}));
}

// Without weights of its own (affine=False), the exporter writes ones and zeros, which the statistics are, too.
TEST(TorchExport, StatisticsKeepTheirNamesWithoutAScale) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 4});
  AddFilled(&model, "bn.mean", {4}, 0);
  AddFilled(&model, "bn.var", {4}, 1);
  AddSignature(
      &model, "b_bn_mean: BUFFER target='bn.mean' persistent=True\nb_bn_var: BUFFER target='bn.var' persistent=True\n");
  AddFx(AddNode(&model, "BatchNormalization", {"x", "bn.var", "bn.mean", "bn.mean", "bn.var"}, {"y"}), "bn",
        "batch_norm.default", "%x, None, None, %b_bn_mean, %b_bn_var");
  AddOutput(&model, "y");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(WeightNames(*imported), (Names{"bn.mean", "bn.mean.constant", "bn.var", "bn.var.constant"}));
  const GraphInput* state = imported->graph.FindInput("bn.var");
  ASSERT_NE(state, nullptr);
  EXPECT_EQ(state->kind, InputKind::kState);
  EXPECT_EQ(FindWeight(*imported, "bn.var.constant")->fixed, FixedWeight::kConstant);
}

TEST(TorchExport, FoldedBatchNormIsFound) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {1, 1, 2, 2});
  AddFilled(&model, "conv.weight", {1, 1, 1, 1}, 3);
  onnx::NodeProto* conv = AddNode(&model, "Conv", {"x", "conv.weight"}, {"y"});
  AddOutput(&model, "y");
  EXPECT_EQ(CountFoldedNorms(**LoadModel(model)), 0);
  AddFx(conv, "bn", "_native_batch_norm_legit_no_training.default", "%conv2d, %p_bn_weight");
  EXPECT_EQ(CountFoldedNorms(**LoadModel(model)), 1);
}

// A BatchNorm that follows no convolution stays where it is, beside those that were folded.
TEST(TorchExport, FoldedBatchNormIsFoundBesideOthers) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {1, 1, 2, 2});
  for (const char* name : {"bn.weight", "bn.bias", "bn.mean", "bn.var", "onnx::Conv_8"})
    AddFilled(&model, name, {1}, 1);
  AddFilled(&model, "onnx::Conv_7", {1, 1, 1, 1}, 3);
  AddFx(AddNode(&model, "BatchNormalization", {"x", "bn.weight", "bn.bias", "bn.mean", "bn.var"}, {"h"}), "bn",
        "_native_batch_norm_legit_no_training.default", "%x, %p_bn_weight");
  AddNode(&model, "Conv", {"h", "onnx::Conv_7", "onnx::Conv_8"}, {"y"});
  AddOutput(&model, "y");
  EXPECT_EQ(CountFoldedNorms(**LoadModel(model)), 1);
}

// TorchScript names what it computes from parameters "onnx::Conv_N": of a folded BatchNorm the weight and the bias, of
// a weight that is only reshaped or normalized the weight alone.
TEST(TorchExport, ComputedConvWeightIsNoFoldedBatchNorm) {
  const auto load = [](const std::string& bias) {
    onnx::ModelProto model = NewModel(17);
    AddInput(&model, "x", {1, 1, 2, 2});
    AddFilled(&model, "fc.weight", {1, 1}, 2);
    AddFilled(&model, "onnx::Conv_254", {1, 1, 1, 1}, 3);
    AddFilled(&model, bias, {1}, 1);
    AddNode(&model, "Conv", {"x", "onnx::Conv_254", bias}, {"y"});
    AddOutput(&model, "y");
    return *LoadModel(model);
  };
  const auto normalized = load("conv1d.bias"), folded = load("onnx::Conv_255");
  EXPECT_EQ(CountFoldedNorms(*normalized), 0);
  EXPECT_EQ(FindFoldedWeights(*normalized), Names{"onnx::Conv_254"});
  EXPECT_EQ(CountFoldedNorms(*folded), 1);
  EXPECT_EQ(FindFoldedWeights(*folded), Names{});
}

// Weight standardization writes the parameter times a number as the scale; nothing else renames a scale.
TEST(TorchExport, ComputedNumbersAreFound) {
  for (const bool attends : {false, true}) {
    onnx::ModelProto model = NewModel(17);
    AddInput(&model, "x", {2, 2});
    FillFloats(AddInitializer(&model, "onnx::Mul_7", {}), {0.125F});
    FillFloats(AddInitializer(&model, "onnx::Mul_8", {}), {0.3F});
    FillFloats(AddInitializer(&model, "onnx::Mul_9", {}), {2});
    AddNode(&model, "Mul", {"x", "onnx::Mul_7"}, {"a"});
    AddNode(&model, attends ? "Softmax" : "Tanh", {"a"}, {"b"});
    AddNode(&model, "Mul", {"b", "onnx::Mul_8"}, {"c"});
    AddNode(&model, "Mul", {"c", "onnx::Mul_9"}, {"y"});
    AddOutput(&model, "y");
    EXPECT_EQ(FindFoldedNumbers(**LoadModel(model)),
              attends ? Names{"onnx::Mul_8"} : (Names{"onnx::Mul_7", "onnx::Mul_8"}));
  }
}

TEST(TorchExport, ComputedScaleOfANormWasFolded) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {1, 1, 2, 2});
  AddFilled(&model, "onnx::BatchNormalization_7", {1}, 2);
  for (const char* name : {"bias", "mean", "var"}) AddFilled(&model, name, {1}, 3);
  AddNode(&model, "BatchNormalization", {"x", "onnx::BatchNormalization_7", "bias", "mean", "var"}, {"y"});
  AddOutput(&model, "y");
  EXPECT_EQ(FindFoldedWeights(**LoadModel(model)), Names{"onnx::BatchNormalization_7"});
}

TEST(TorchExport, EditsOfMergedWeightsReachTheirReaders) {
  const auto loaded = OnnxModel::Load(Save(TwoNorms("n2")));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto edited = (*loaded)->LoadEdited({.tensors = {{"n2.weight", Floats({4}, {1, 2, 3, 4})}}});
  ASSERT_TRUE(edited.ok()) << edited.status();
  const auto imported = Import(**edited, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(FindWeight(*imported, "n2.weight")->value.At(3), 4);
  EXPECT_EQ(FindWeight(*imported, "n1.weight")->value.At(3), 1);
}

// ONNX Runtime's quantizer drops the metadata of nodes and the initializer, and keeps the value_info of the floats.
TEST(TorchExport, QuantizedProductsAreInTheModulesOfTheirFloats) {
  const auto modules = [](const std::string& weight, const std::string& sources) {
    onnx::ModelProto model = NewModel(20);
    onnx::OperatorSetIdProto* domain = model.add_opset_import();
    domain->set_domain("com.microsoft");
    domain->set_version(1);
    AddInput(&model, "x", {2, 16});
    AddInitializer(&model, weight, {4, 1, 8}, onnx::TensorProto::UINT8)->set_raw_data(std::string(32, '\x57'));
    FillFloats(AddInitializer(&model, "val_3_scales", {4, 1}), {1, 2, 3, 4});
    onnx::NodeProto* node = AddNode(&model, "MatMulNBits", {"x", weight, "val_3_scales"}, {"linear"}, "node_linear_Q4");
    node->set_domain("com.microsoft");
    for (const auto& [name, value] : {std::pair("K", 16), {"N", 4}, {"bits", 4}, {"block_size", 16}})
      SetInt(node, name, value);
    AddOutput(&model, "linear");
    AddSignature(&model, "\n# inputs\np_q: PARAMETER target='layers.0.q_proj.weight'\nx: USER_INPUT\n");
    AddFoldedFrom(&model, "val_3", sources);
    const auto loaded = LoadModel(model);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    Names names;
    for (const LowRankTarget& target : ListLowRankTargets(**loaded)) names.push_back(target.module);
    return names;
  };
  const Names named = {"layers.0.q_proj"};
  EXPECT_EQ(modules("val_3_Q4", "['layers.0.q_proj.weight']"), named);
  EXPECT_EQ(modules("val_3_DQ_Q8", "['layers.0.q_proj.weight']"), named);
  EXPECT_NE(modules("val_3_Q4", "['layers.0.q_proj.weight', 'val_1']"), named);
  EXPECT_NE(modules("val_3_Qx", "['layers.0.q_proj.weight']"), named);
  EXPECT_NE(modules("val_4_Q4", "['layers.0.q_proj.weight']"), named);
}

}  // namespace
}  // namespace onnxtrain
