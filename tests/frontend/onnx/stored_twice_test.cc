// Weights that a file stores several times: the same tensor, or rows of it.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/frontend/onnx/model_builder.h"
#include "tests/frontend/onnx/torch_metadata.h"

namespace onnxtrain {
namespace {

// An embedding, which the exporter stores a second time, transposed, for the head that shares it.
onnx::ModelProto TiedHead(bool metadata) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2}, 7);
  FillFloats(AddInitializer(&model, "wte.weight", {3, 2}), {1, 2, 3, 4, 5, 6});
  FillFloats(AddInitializer(&model, "val_9", {2, 3}), {1, 3, 5, 2, 4, 6});
  if (metadata) {
    AddSignature(&model, "\n# inputs\np_wte_weight: PARAMETER target='wte.weight'\nx: USER_INPUT\n");
    AddFoldedFrom(&model, "val_9", "['wte.weight']");
  }
  AddFx(AddNode(&model, "Gather", {"wte.weight", "x"}, {"h"}), "embedding", "embedding.default", "%p_wte_weight, %x");
  AddFx(AddNode(&model, "MatMul", {"h", "val_9"}, {"y"}), "linear", "linear.default", "%embedding, %p_wte_weight");
  AddOutput(&model, "y");
  return model;
}

absl::StatusOr<Names> NamesWithEdits(const onnx::ModelProto& model, const ModelEdits& edits) {
  auto loaded = OnnxModel::Load(Save(model), edits);
  if (!loaded.ok()) return loaded.status();
  auto imported = Import(**loaded, {.training = true});
  if (!imported.ok()) return imported.status();
  return WeightNames(*imported);
}

TEST(Ties, AParameterStoredTwiceIsOneWeight) {
  EXPECT_EQ(*NamesWithEdits(TiedHead(true), {}), (Names{"wte.weight"}));
  EXPECT_EQ(*NamesWithEdits(TiedHead(true), {.tie_stored_twice = false}), (Names{"val_9", "wte.weight"}));
  EXPECT_EQ(*NamesWithEdits(TiedHead(false), {.ties = {{"wte.weight", "val_9"}}, .tie_stored_twice = false}),
            (Names{"wte.weight"}));
}

TEST(Ties, AHeadThatHoldsTheEmbeddingIsTiedWithoutMetadata) {
  EXPECT_EQ(*NamesWithEdits(TiedHead(false), {}), (Names{"wte.weight"}));
  EXPECT_EQ(*NamesWithEdits(TiedHead(false), {.tie_stored_twice = false}), (Names{"val_9", "wte.weight"}));
  onnx::ModelProto other = TiedHead(false);
  FillFloats(other.mutable_graph()->mutable_initializer(1), {1, 3, 5, 2, 4, 7});
  EXPECT_EQ(*NamesWithEdits(other, {}), (Names{"val_9", "wte.weight"}));
  onnx::ModelProto same = TiedHead(false);  // equal numbers prove nothing
  FillFloats(same.mutable_graph()->mutable_initializer(0), {1, 1, 1, 1, 1, 1});
  FillFloats(same.mutable_graph()->mutable_initializer(1), {1, 1, 1, 1, 1, 1});
  EXPECT_EQ(*NamesWithEdits(same, {}), (Names{"val_9", "wte.weight"}));
}

// Older exporters compute a parameter's view once for each reader.
TEST(Ties, WhatWasComputedForEachReaderIsOneWeight) {
  const auto names = [](bool as_weight) {
    onnx::ModelProto model = NewModel(17);
    AddInput(&model, "x", {2, 2});
    for (const char* table : {"onnx::MatMul_7", "onnx::MatMul_9"})
      FillFloats(AddInitializer(&model, table, {2, 2}), {1, 2, 3, 4});
    FillFloats(AddInitializer(&model, "onnx::MatMul_8", {2, 2}), {5, 6, 7, 9});
    AddNode(&model, "MatMul", {as_weight ? "x" : "onnx::MatMul_7", as_weight ? "onnx::MatMul_7" : "onnx::MatMul_8"},
            {"a"});
    AddNode(&model, "MatMul", {as_weight ? "x" : "onnx::MatMul_9", as_weight ? "onnx::MatMul_9" : "onnx::MatMul_8"},
            {"b"});
    AddNode(&model, "Mul", {"a", "x"}, {"c"});
    AddNode(&model, "Add", {"b", "c"}, {"y"});
    AddOutput(&model, "y");
    return *NamesWithEdits(model, {});
  };
  EXPECT_EQ(names(false), (Names{"onnx::MatMul_7", "onnx::MatMul_8"}));
  EXPECT_EQ(names(true), (Names{"onnx::MatMul_7", "onnx::MatMul_9"})) << "layers may be clones of each other";
}

// Layers of a fresh state space start with the same decay rates, which the exporter has merged.
TEST(Ties, DecayRatesOfFreshLayersAreNotOneWeight) {
  const auto names = [](float last) {
    onnx::ModelProto model = NewModel(17);
    AddInput(&model, "x", {2, 4});
    FillFloats(AddInitializer(&model, "onnx::Exp_1", {2, 4}),
               {0, 0.6931472F, 1.0986123F, 1.3862944F, 0, 0.6931472F, 1.0986123F, last});
    AddNode(&model, "Identity", {"onnx::Exp_1"}, {"onnx::Exp_2"});
    AddNode(&model, "Exp", {"onnx::Exp_1"}, {"a"})->set_name("/layers.0/Exp");
    AddNode(&model, "Exp", {"onnx::Exp_2"}, {"b"})->set_name("/layers.1/Exp");
    AddNode(&model, "Mul", {"x", "a"}, {"h"});
    AddNode(&model, "Mul", {"h", "b"}, {"y"});
    AddOutput(&model, "y");
    return *NamesWithEdits(model, {});
  };
  EXPECT_EQ(names(1.3862944F), (Names{"onnx::Exp_1", "onnx::Exp_2"}));
  EXPECT_EQ(names(1.5F), (Names{"onnx::Exp_1"})) << "trained numbers are not equal by chance";
}

// A convolution that standardizes its weight: the older exporter stores the weight as batch normalization reads it, and
// transposed, as the means of the channels do.
TEST(Ties, AWeightOfAStandardizedConvolutionIsOneWeight) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {1, 2, 1, 3});
  FillFloats(AddInitializer(&model, "onnx::Sub_1", {1, 2, 3}), {1, 2, 3, 4, 5, 7});
  FillFloats(AddInitializer(&model, "onnx::ReduceMean_2", {1, 3, 2}), {1, 4, 2, 5, 3, 7});
  SetInts(AddNode(&model, "ReduceMean", {"onnx::ReduceMean_2"}, {"mean"}), "axes", {1});
  SetInts(AddNode(&model, "Transpose", {"mean"}, {"means"}), "perm", {0, 2, 1});
  AddNode(&model, "Sub", {"onnx::Sub_1", "means"}, {"y"});
  AddOutput(&model, "y");
  EXPECT_EQ(*NamesWithEdits(model, {}), (Names{"onnx::Sub_1"}));
  const auto exported = RoundTrip(model, {{"onnx::Sub_1", Floats({1, 2, 3}, {6, 5, 4, 3, 2, 1})}});
  ASSERT_TRUE(exported.ok()) << exported.status();
  const auto* values = reinterpret_cast<const float*>(exported->graph().initializer(1).raw_data().data());
  EXPECT_EQ(std::vector<float>(values, values + 6), (std::vector<float>{6, 3, 5, 2, 4, 1}));
}

TEST(Ties, TheExportWritesBothCopies) {
  const auto exported = RoundTrip(TiedHead(true), {{"wte.weight", Floats({3, 2}, {6, 5, 4, 3, 2, 1})}});
  ASSERT_TRUE(exported.ok()) << exported.status();
  const auto* values = reinterpret_cast<const float*>(exported->graph().initializer(1).raw_data().data());
  EXPECT_EQ(std::vector<float>(values, values + 6), (std::vector<float>{6, 4, 2, 5, 3, 1}));
}

// A position bias [1, heads, 2, 2]: the exporter looked three distances up in a table of the heads' biases.
onnx::ModelProto FoldedLookup(const std::string& sources, const std::vector<float>& values) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {1, 2, 2, 2});
  FillFloats(AddInitializer(&model, "val_9", {1, 2, 2, 2}), values);
  AddSignature(&model,
               "\n# inputs\np_bias: PARAMETER target='bias.weight'\np_b: PARAMETER target='b'\nx: USER_INPUT\n");
  AddFoldedFrom(&model, "val_9", sources);
  AddFx(AddNode(&model, "Add", {"x", "val_9"}, {"y"}), "add", "add.Tensor", "%x, %unsqueeze");
  AddOutput(&model, "y");
  return model;
}

const std::vector<float> kBiasByDistance = {1, 2, 3, 1, 10, 20, 30, 10};

TEST(RowCopies, TheTableOfAFoldedLookupIsTrained) {
  const auto imported = ImportModel(FoldedLookup("['bias.weight', 'val_3']", kBiasByDistance), {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(WeightNames(*imported), (Names{"val_9.table"}));
  const ImportedWeight& table = imported->weights[0];
  EXPECT_EQ(table.alias, "bias.weight");
  EXPECT_EQ(table.value.shape(), (Shape{3, 2}));
  EXPECT_EQ(table.value.At(1), 10);
  EXPECT_EQ(table.value.At(5), 30);
}

TEST(RowCopies, GeneratedNamesTellOfLookupsWithoutMetadata) {
  const auto names = [](const std::string& name, const char* op) {
    onnx::ModelProto model = NewModel(17);
    AddInput(&model, "x", {3, 3});
    FillFloats(AddInitializer(&model, name, {3, 3}), {1, 2, 7, 3, 4, 5, 1, 2, 7});
    AddNode(&model, op, {"x", name}, {"y"});
    AddOutput(&model, "y");
    return *NamesWithEdits(model, {});
  };
  EXPECT_EQ(names("onnx::Add_12", "Add"), (Names{"onnx::Add_12.table"}));
  EXPECT_EQ(names("onnx::MatMul_12", "MatMul"), (Names{"onnx::MatMul_12"})) << "a transposed weight";
  EXPECT_EQ(names("bias", "Add"), (Names{"bias"})) << "a parameter under its own name";
}

TEST(RowCopies, OtherTensorsStayAsTheyAre) {
  const auto names = [](const std::string& sources, const std::vector<float>& values) {
    return *NamesWithEdits(FoldedLookup(sources, values), {});
  };
  EXPECT_EQ(names("['bias.weight', 'val_3']", {1, 2, 3, 4, 10, 20, 30, 40}), (Names{"val_9"})) << "nothing repeats";
  EXPECT_EQ(names("['bias.weight', 'val_3']", {1, 2, 3, 1, 10, 20, 30, 11}), (Names{"val_9"})) << "half a row does";
  EXPECT_EQ(names("['bias.weight', 'val_3']", {0, 0, 0, 0, 0, 0, 0, 0}), (Names{"val_9"})) << "equal numbers";
  EXPECT_EQ(names("['bias.weight', 'val_3']", {0, 2, 3, 0, 10, 20, 30, 10}), (Names{"val_9"})) << "zeros of a ReLU";
  EXPECT_EQ(names("['bias.weight']", kBiasByDistance), (Names{"val_9"})) << "no indices";
  EXPECT_EQ(names("['ids', 'val_3']", kBiasByDistance), (Names{"val_9"})) << "no parameter";
}

// A fresh state space has the same numbers in every row: functions of single numbers and other shapes repeat nothing.
TEST(RowCopies, RowsOfAParameterMayBeEqual) {
  const auto names = [](const std::string& name, const std::string& sources) {
    onnx::ModelProto model = FoldedLookup(sources, {-1, -2, -1, -2, -1, -2, -1, -2});
    model.mutable_graph()->mutable_initializer(0)->set_name(name);
    model.mutable_graph()->mutable_value_info(0)->set_name(name);
    model.mutable_graph()->mutable_node(0)->set_input(1, name);
    return *NamesWithEdits(model, {});
  };
  EXPECT_EQ(names("unsqueeze_5", "['bias.weight', 'exp', 'neg', 'unsqueeze_4', 'val_21', 'val_60']"),
            (Names{"unsqueeze_5.log"}));
  EXPECT_EQ(names("unsqueeze_5", "['bias.weight', 'unsqueeze_4', 'val_60']"), (Names{"unsqueeze_5"}));
  EXPECT_EQ(names("unsqueeze_5", "['bias.weight', 'index', 'val_60']"), (Names{"unsqueeze_5.table"}));
  EXPECT_EQ(names("expand_1", "['bias.weight', 'val_60']"), (Names{"expand_1.table"}));
}

// A fresh class token, which the exporter expanded to the batch.
TEST(RowCopies, AnExpandedTokenOfEqualNumbersIsOneToken) {
  const auto count = [](const std::string& name) {
    onnx::ModelProto model = FoldedLookup("['bias.weight', 'val_3']", {0, 0, 0, 0, 0, 0, 0, 0});
    auto* initializer = model.mutable_graph()->mutable_initializer(0);
    initializer->set_name(name);
    initializer->mutable_dims()->Set(0, 2);
    initializer->mutable_dims()->Set(2, 1);
    model.mutable_graph()->mutable_value_info(0)->set_name(name);
    model.mutable_graph()->mutable_node(0)->set_input(1, name);
    model.mutable_graph()
        ->mutable_input(0)
        ->mutable_type()
        ->mutable_tensor_type()
        ->mutable_shape()
        ->mutable_dim(0)
        ->set_dim_value(2);
    const auto imported = ImportModel(model, {.training = true});
    return imported.ok() ? imported->weights[0].value.size() : -1;
  };
  EXPECT_EQ(count("expand_1"), 4);
  EXPECT_EQ(count("val_9"), 8);
}

TEST(RowCopies, TheExportLooksTheRowsUp) {
  const auto exported = RoundTrip(FoldedLookup("['bias.weight', 'val_3']", kBiasByDistance),
                                  {{"val_9.table", Floats({3, 2}, {4, 40, 5, 50, 6, 60})}});
  ASSERT_TRUE(exported.ok()) << exported.status();
  ASSERT_EQ(exported->graph().initializer_size(), 1);
  EXPECT_EQ(exported->graph().initializer(0).name(), "val_9");
  const auto* values = reinterpret_cast<const float*>(exported->graph().initializer(0).raw_data().data());
  EXPECT_EQ(std::vector<float>(values, values + 8), (std::vector<float>{4, 5, 6, 4, 40, 50, 60, 40}));
  EXPECT_EQ(exported->graph().node_size(), 1);
}

TEST(RowCopies, EditsOfTheTableReachTheReaders) {
  const auto loaded = OnnxModel::Load(Save(FoldedLookup("['bias.weight', 'val_3']", kBiasByDistance)));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto edited = (*loaded)->LoadEdited({.tensors = {{"val_9.table", Floats({3, 2}, {4, 40, 5, 50, 6, 60})}}});
  ASSERT_TRUE(edited.ok()) << edited.status();
  const auto imported = Import(**edited, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(WeightNames(*imported), (Names{"val_9.table"}));
  EXPECT_EQ(imported->weights[0].value.At(2), 5);
}

// Attention whose scores [1, heads, N, N] get the bias "onnx::Add_1", in two blocks: the second reads it through an
// Identity, since the exporter has merged equal bytes.
onnx::ModelProto TwoAttentions(const Shape& shape, const std::vector<float>& bias) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", shape);
  FillFloats(AddInitializer(&model, "onnx::Add_1", shape), bias);
  AddNode(&model, "Identity", {"onnx::Add_1"}, {"onnx::Add_2"});
  AddNode(&model, "Add", {"x", "onnx::Add_1"}, {"a"}, "/layer.0/Add");
  AddNode(&model, "Softmax", {"a"}, {"b"}, "/layer.0/Softmax");
  AddNode(&model, "Add", {"b", "onnx::Add_2"}, {"c"}, "/layer.1/Add");
  AddNode(&model, "Softmax", {"c"}, {"y"}, "/layer.1/Softmax");
  AddOutput(&model, "y");
  return model;
}

std::vector<int64_t> CountRows(const onnx::ModelProto& model, const ModelEdits& edits = {}) {
  const auto loaded = OnnxModel::Load(Save(model), edits);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  const auto imported = Import(**loaded, {.training = true});
  EXPECT_TRUE(imported.ok()) << imported.status();
  std::vector<int64_t> rows;
  for (const ImportedWeight& weight : imported->weights) rows.push_back(weight.value.size());
  return rows;
}

// The bias of head h between positions q and k of windows of 2×2: by their offset, of which there are nine. `rows`:
// their values for head 0; those of others are larger by 100 each.
std::vector<float> BiasOfWindow(int64_t heads, const std::vector<float>& rows) {
  std::vector<float> bias;
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t pair = 0; pair < 16; ++pair) {
      const int64_t q = pair / 4, k = pair % 4;
      const float value = rows[(q / 2 - k / 2 + 1) * 3 + q % 2 - k % 2 + 1];
      bias.push_back(value == 0 ? 0 : value + 100 * static_cast<float>(h));
    }
  }
  return bias;
}

TEST(RowCopies, ABiasOfAWindowHasARowForEachOffset) {
  const std::vector<float> rows = {1, 2, 3, 4, 7, 6, 5, 8, 10};
  EXPECT_EQ(CountRows(TwoAttentions({1, 3, 4, 4}, BiasOfWindow(3, rows))), (std::vector<int64_t>{27}))
      << "both blocks share what is equal by more than chance";
  EXPECT_EQ(CountRows(TwoAttentions({1, 1, 4, 4}, BiasOfWindow(1, rows))), (std::vector<int64_t>{9})) << "one head";
  EXPECT_EQ(CountRows(TwoAttentions({1, 3, 4, 4}, BiasOfWindow(3, {1, 0, 3, 4, 5, 6, 0, 8, 10}))),
            (std::vector<int64_t>{27}))
      << "two offsets have zeros";
}

TEST(RowCopies, GenuineParametersOfThatShapeStayPlain) {
  std::vector<float> random = BiasOfWindow(3, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  for (size_t i = 0; i < random.size(); ++i) random[i] += 0.01F * static_cast<float>(i * 7 % 11 + i);
  EXPECT_EQ(CountRows(TwoAttentions({1, 3, 4, 4}, random)), (std::vector<int64_t>{48}));
  onnx::ModelProto named = TwoAttentions({1, 3, 4, 4}, std::vector<float>(48));
  named.mutable_graph()->mutable_initializer(0)->set_name("bias");
  for (onnx::NodeProto& node : *named.mutable_graph()->mutable_node()) {
    for (std::string& input : *node.mutable_input()) input = input == "onnx::Add_1" ? "bias" : input;
  }
  EXPECT_EQ(CountRows(named), (std::vector<int64_t>{48, 48}));
}

// Nothing but its shape and the softmax tell what a fresh bias of zeros is.
TEST(RowCopies, AFreshBiasOfASquareWindowIsTakenForItsOffsets) {
  EXPECT_EQ(CountRows(TwoAttentions({1, 3, 4, 4}, std::vector<float>(48))), (std::vector<int64_t>{27, 27}));
  EXPECT_EQ(CountRows(TwoAttentions({1, 3, 5, 5}, std::vector<float>(75))), (std::vector<int64_t>{36, 36}))
      << "a class token has three rows more";
  EXPECT_EQ(CountRows(TwoAttentions({1, 3, 6, 6}, std::vector<float>(108))), (std::vector<int64_t>{108, 108}));
  EXPECT_EQ(CountRows(TwoAttentions({1, 3, 4, 4}, std::vector<float>(48)), {.tie_stored_twice = false}),
            (std::vector<int64_t>{48, 48}));
  onnx::ModelProto other = TwoAttentions({1, 3, 4, 4}, std::vector<float>(48));
  for (onnx::NodeProto& node : *other.mutable_graph()->mutable_node()) {
    if (node.op_type() == "Softmax") node.set_op_type("Relu");
  }
  EXPECT_EQ(CountRows(other), (std::vector<int64_t>{48, 48}));
}

TEST(RowCopies, TheExportLooksUpEachBiasByItself) {
  const onnx::ModelProto model = TwoAttentions({1, 1, 4, 4}, std::vector<float>(16));
  const std::vector<float> first = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const std::vector<double> in_file_order = {5, 4, 2, 1, 6, 3, 8, 7, 9};  // as offsets first occur
  const auto exported = RoundTrip(model, {{"onnx::Add_1.table", Floats({9, 1}, in_file_order)}});
  ASSERT_TRUE(exported.ok()) << exported.status();
  const auto* values = reinterpret_cast<const float*>(exported->graph().initializer(0).raw_data().data());
  EXPECT_EQ(std::vector<float>(values, values + 16), BiasOfWindow(1, first));
  const auto second = RoundTrip(model, {{"onnx::Add_2.table", Floats({9, 1}, in_file_order)}});
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_EQ(second->graph().initializer_size(), 2);
  EXPECT_EQ(second->graph().initializer(1).name(), "onnx::Add_2");
  const auto* zeros = reinterpret_cast<const float*>(second->graph().initializer(0).raw_data().data());
  EXPECT_EQ(std::vector<float>(zeros, zeros + 16), std::vector<float>(16));
  values = reinterpret_cast<const float*>(second->graph().initializer(1).raw_data().data());
  EXPECT_EQ(std::vector<float>(values, values + 16), BiasOfWindow(1, first));
}

// A bias that blocks share, which the exporter looked up for each of them.
TEST(RowCopies, TheExportWritesSharedTablesWhereverTheyAre) {
  onnx::ModelProto model = TwoAttentions({1, 1, 4, 4}, BiasOfWindow(1, {1, 2, 3, 4, 7, 6, 5, 8, 10}));
  onnx::TensorProto second = model.graph().initializer(0);
  second.set_name("onnx::Add_2");
  *model.mutable_graph()->add_initializer() = second;
  model.mutable_graph()->mutable_node()->DeleteSubrange(0, 1);
  ASSERT_EQ(CountRows(model), (std::vector<int64_t>{9}));
  const HostTensor table = Floats({9, 1}, {5, 4, 2, 1, 6, 3, 8, 7, 9});
  const auto exported = RoundTrip(model, {{"onnx::Add_1.table", table}});
  ASSERT_TRUE(exported.ok()) << exported.status();
  for (const int i : {0, 1}) {
    const auto* values = reinterpret_cast<const float*>(exported->graph().initializer(i).raw_data().data());
    EXPECT_EQ(std::vector<float>(values, values + 16), BiasOfWindow(1, {1, 2, 3, 4, 5, 6, 7, 8, 9})) << i;
  }
}

// Slopes times distances repeat as lookups do, and are no parameters.
TEST(RowCopies, AlibiIsAConstant) {
  std::vector<float> bias;
  for (const float slope : {0.5F, 0.25F}) {
    for (int pair = 0; pair < 16; ++pair) bias.push_back(slope * static_cast<float>(pair % 4 - pair / 4 + 7));
  }
  const auto imported = ImportModel(TwoAttentions({1, 2, 4, 4}, bias), {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(WeightNames(*imported), (Names{"onnx::Add_1"}));
  EXPECT_EQ(imported->weights[0].fixed, FixedWeight::kConstant);
}

// Two tables of equal values, one of which the exporter has left to an Identity: two weights, or one where tied.
TEST(Ties, CopiesBehindAnIdentityAreOneWeight) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 2});
  FillFloats(AddInitializer(&model, "encoder.table", {2, 2}), {1, 2, 3, 4});
  AddNode(&model, "Identity", {"encoder.table"}, {"decoder.table"});
  AddNode(&model, "Mul", {"x", "encoder.table"}, {"h"});
  AddNode(&model, "Add", {"h", "decoder.table"}, {"y"});
  AddOutput(&model, "y");
  EXPECT_EQ(*NamesWithEdits(model, {}), (Names{"decoder.table", "encoder.table"}));
  EXPECT_EQ(*NamesWithEdits(model, {.ties = {{"encoder.table", "decoder.table"}}}), (Names{"encoder.table"}));
  EXPECT_EQ(*NamesWithEdits(model, {.ties = {{"decoder.table", "encoder.table"}}}), (Names{"encoder.table"}));
}

// The program reads its parameter through aten.alias: nothing was merged.
TEST(Ties, CopiesOfTheProgramAreItsParameter) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 2});
  FillFloats(AddInitializer(&model, "encoder.table", {2, 2}), {1, 2, 3, 4});
  AddSignature(&model, "\n# inputs\np_table: PARAMETER target='encoder.table'\nx: USER_INPUT\n");
  AddFx(AddNode(&model, "Identity", {"encoder.table"}, {"alias"}), "alias", "alias.default", "%p_table");
  AddFx(AddNode(&model, "Mul", {"x", "encoder.table"}, {"h"}), "mul", "mul.Tensor", "%x, %p_table");
  AddFx(AddNode(&model, "Add", {"h", "alias"}, {"y"}), "add", "add.Tensor", "%mul, %alias");
  AddOutput(&model, "y");
  EXPECT_EQ(*NamesWithEdits(model, {}), (Names{"encoder.table"}));
}

TEST(Ties, RefuseWeightsThatDifferOrDoNotExist) {
  onnx::ModelProto model = TiedHead(false);
  EXPECT_NE(Message(NamesWithEdits(model, {.ties = {{"wte.weight", "head"}}}).status()).find("no weight 'head'"),
            std::string::npos);
  FillFloats(model.mutable_graph()->mutable_initializer(1), {1, 3, 5, 2, 4, 7});
  EXPECT_NE(Message(NamesWithEdits(model, {.ties = {{"wte.weight", "val_9"}}}).status()).find("cannot be one weight"),
            std::string::npos);
}

// y = p·x + (1 − p)·tanh(x), where the exporter computed 1 − p.
onnx::ModelProto Blend(const std::vector<float>& p, const std::vector<float>& rest, bool metadata) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 3});
  const std::string computed = metadata ? "sub" : "onnx::Mul_9";
  std::vector<int64_t> shape;
  if (p.size() > 1) shape.push_back(static_cast<int64_t>(p.size()));
  FillFloats(AddInitializer(&model, "mix", shape), p);
  FillFloats(AddInitializer(&model, computed, shape), rest);
  if (metadata) {
    AddSignature(&model, "\n# inputs\np_mix: PARAMETER target='mix'\nx: USER_INPUT\n");
    AddFoldedFrom(&model, computed, "['mix', 'val_1']");
  }
  AddNode(&model, "Tanh", {"x"}, {"t"}, "/Tanh");
  onnx::NodeProto* first = AddNode(&model, "Mul", {"mix", "x"}, {"a"}, "/Mul");
  if (metadata) AddFx(first, "mul", "mul.Tensor", "%p_mix, %x");
  onnx::NodeProto* second = AddNode(&model, "Mul", {computed, "t"}, {"b"}, "/Mul_1");
  if (metadata) AddFx(second, "mul_1", "mul.Tensor", "%sub, %tanh");
  AddNode(&model, "Add", {"a", "b"}, {"y"}, "/Add");
  AddOutput(&model, "y");
  return model;
}

// The older exporter computes 1 − p once for each reader.
TEST(Ties, EveryComplementFollowsItsParameter) {
  onnx::ModelProto model = Blend({0.25F, 0.5F, 0.75F}, {0.75F, 0.5F, 0.25F}, false);
  FillFloats(AddInitializer(&model, "onnx::Mul_10", {3}), {0.75F, 0.5F, 0.25F});
  AddNode(&model, "Mul", {"y", "onnx::Mul_10"}, {"z"}, "/Mul_2");
  model.mutable_graph()->mutable_output(0)->set_name("z");
  EXPECT_EQ(*NamesWithEdits(model, {}), (Names{"mix"}));
  const auto exported = RoundTrip(model, {{"mix", Floats({3}, {1, 2, 3})}});
  ASSERT_TRUE(exported.ok()) << exported.status();
  for (const int i : {1, 2}) {
    const auto* computed = reinterpret_cast<const float*>(exported->graph().initializer(i).raw_data().data());
    EXPECT_EQ(std::vector<float>(computed, computed + 3), (std::vector<float>{0, -1, -2})) << i;
  }
}

TEST(Ties, ComplementsOfParametersAreComputed) {
  for (const bool metadata : {false, true}) {
    const onnx::ModelProto vector = Blend({0.25F, 0.5F, 0.75F}, {0.75F, 0.5F, 0.25F}, metadata);
    EXPECT_EQ(*NamesWithEdits(vector, {}), (Names{"mix"}));
    EXPECT_EQ(NamesWithEdits(vector, {.tie_stored_twice = false})->size(), 2U);
    EXPECT_EQ(*NamesWithEdits(Blend({0.3F}, {0.7F}, metadata), {}), (Names{"mix"}));
    EXPECT_EQ(NamesWithEdits(Blend({0.25F, 0.5F, 0.75F}, {0.75F, 0.5F, 0.125F}, metadata), {})->size(), 2U);
    EXPECT_EQ(NamesWithEdits(Blend({1, 1, 1}, {0, 0, 0}, metadata), {})->size(), 2U) << "equal by chance";
    const auto exported = RoundTrip(vector, {{"mix", Floats({3}, {1, 2, 3})}});
    ASSERT_TRUE(exported.ok()) << exported.status();
    const auto* computed = reinterpret_cast<const float*>(exported->graph().initializer(1).raw_data().data());
    EXPECT_EQ(std::vector<float>(computed, computed + 3), (std::vector<float>{0, -1, -2}));
  }
}

std::vector<float> StoredFloats(const onnx::ModelProto& model, int initializer) {
  const auto& bytes = model.graph().initializer(initializer).raw_data();
  const auto* numbers = reinterpret_cast<const float*>(bytes.data());
  return {numbers, numbers + bytes.size() / sizeof(float)};
}

// MobileBERT's head: the transposed embedding [4, 2] and two rows of its own, in either order.
onnx::ModelProto JoinedHead(bool below) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "ids", {2}, 7);
  FillFloats(AddInitializer(&model, "table", {4, 2}), {1, 2, 3, 4, 5, 6, 7, 8});
  const std::vector<float> tied = {1, 3, 5, 7, 2, 4, 6, 8}, own = {.1F, .2F, .3F, .4F, .5F, .6F, .7F, .8F};
  std::vector<float> head = below ? own : tied;
  head.insert(head.end(), (below ? tied : own).begin(), (below ? tied : own).end());
  FillFloats(AddInitializer(&model, "onnx::MatMul_9", {4, 4}), head);
  AddNode(&model, "Gather", {"table", "ids"}, {"e"}, "/embed/Gather");
  SetInt(AddNode(&model, "Concat", {"e", "e"}, {"h"}, "/Concat"), "axis", 1);
  AddNode(&model, "MatMul", {"h", "onnx::MatMul_9"}, {"y"}, "/head/MatMul");
  AddOutput(&model, "y");
  return model;
}

TEST(Joined, AHeadOfTheEmbeddingAndAMatrixIsBoth) {
  for (const bool below : {false, true}) {
    const std::string own = below ? "onnx::MatMul_9.0" : "onnx::MatMul_9.1";
    EXPECT_EQ(*NamesWithEdits(JoinedHead(below), {}), (Names{own, "table"}));
    EXPECT_EQ(*NamesWithEdits(JoinedHead(below), {.tie_stored_twice = false}), (Names{"onnx::MatMul_9", "table"}));
    const auto exported = RoundTrip(JoinedHead(below), {{"table", Floats({4, 2}, {8, 7, 6, 5, 4, 3, 2, 1})}});
    ASSERT_TRUE(exported.ok()) << exported.status();
    const std::vector<float> tied = {8, 6, 4, 2, 7, 5, 3, 1}, rest = {.1F, .2F, .3F, .4F, .5F, .6F, .7F, .8F};
    std::vector<float> head = below ? rest : tied;
    head.insert(head.end(), (below ? tied : rest).begin(), (below ? tied : rest).end());
    EXPECT_EQ(StoredFloats(*exported, 1), head);
    const auto trained = RoundTrip(JoinedHead(below), {{own, Floats({2, 4}, {9, 9, 9, 9, 9, 9, 9, 9})}});
    ASSERT_TRUE(trained.ok()) << trained.status();
    EXPECT_EQ(StoredFloats(*trained, 1)[below ? 0 : 15], 9);
    EXPECT_EQ(StoredFloats(*trained, 1)[below ? 8 : 0], 1);
  }
}

// The joined bias of queries, keys and values, of which the keys have none.
TEST(Joined, AThirdOfZerosIsNoBias) {
  const auto with_bias = [](const std::vector<float>& bias) {
    onnx::ModelProto model = NewModel(17);
    AddInput(&model, "x", {2, 2});
    FillFloats(AddInitializer(&model, "w", {2, 6}), {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3});
    FillFloats(AddInitializer(&model, "onnx::Add_9", {6}), bias);
    AddNode(&model, "MatMul", {"x", "w"}, {"p"}, "/attn/MatMul");
    AddNode(&model, "Add", {"p", "onnx::Add_9"}, {"y"}, "/attn/Add");
    AddOutput(&model, "y");
    return model;
  };
  const onnx::ModelProto joined = with_bias({1, 2, 0, 0, 3, 4});
  const auto imported = ImportModel(joined, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(FindWeight(*imported, "onnx::Add_9.0")->fixed, FixedWeight::kNo);
  EXPECT_EQ(FindWeight(*imported, "onnx::Add_9.1")->fixed, FixedWeight::kConstant);
  EXPECT_EQ(FindWeight(*imported, "onnx::Add_9.2")->fixed, FixedWeight::kNo);
  EXPECT_EQ(*NamesWithEdits(with_bias({1, 2, 0, 5, 3, 4}), {}), (Names{"onnx::Add_9", "w"}));
  EXPECT_EQ(*NamesWithEdits(with_bias({0, 0, 0, 0, 0, 0}), {}), (Names{"onnx::Add_9", "w"}));
  const auto exported = RoundTrip(joined, {{"onnx::Add_9.2", Floats({2}, {7, 8})}});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(StoredFloats(*exported, 1), (std::vector<float>{1, 2, 0, 0, 7, 8}));
}

}  // namespace
}  // namespace onnxtrain
