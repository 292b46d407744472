// Tests the ways in which exporters store weights and shapes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "frontend/onnx/write/export.h"
#include "model_builder.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

InputKind GetInputKind(const ImportedModel& model, const std::string& name) {
  const GraphInput* input = model.graph.FindInput(name);
  EXPECT_NE(input, nullptr) << name;
  return input == nullptr ? InputKind::kFeed : input->kind;
}

// x [N,3,4,4] → Conv(w) → BatchNormalization → y, with all weights filled by nodes.
onnx::ModelProto FilledModel() {
  onnx::ModelProto model = NewModel(9);
  model.set_ir_version(3);
  AddInput(&model, "x", {-1, 3, 4, 4});
  auto fill = [&](const std::string& name, const std::vector<int64_t>& dims) {
    FillInts(AddInitializer(&model, name + "_shape", {static_cast<int64_t>(dims.size())}, 7), dims);
    AddInput(&model, name + "_shape", {static_cast<int64_t>(dims.size())}, 7);
    onnx::TensorProto* value = SetTensor(AddNode(&model, "ConstantOfShape", {name + "_shape"}, {name}), "value");
    value->set_data_type(1);
    value->add_dims(1);
    FillFloats(value, {0.25f});
  };
  fill("w", {2, 3, 1, 1});
  for (const char* name : {"scale", "bias", "mean", "var"}) fill(name, {2});
  AddNode(&model, "Conv", {"x", "w"}, {"c"});
  AddNode(&model, "BatchNormalization", {"c", "scale", "bias", "mean", "var"}, {"n"}, "bn");
  // A filled tensor that is not a weight: an initial state, concatenated with the features.
  fill("padding", {1, 2, 4, 4});
  AddNode(&model, "Sub", {"n", "padding"}, {"y"});
  AddOutput(&model, "y");
  return model;
}

TEST(FilledWeights, AreTrainedAndPromotedOnExport) {
  const onnx::ModelProto model = FilledModel();
  auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(GetInputKind(*imported, "w"), InputKind::kParameter);
  EXPECT_EQ(GetInputKind(*imported, "scale"), InputKind::kParameter);
  EXPECT_EQ(GetInputKind(*imported, "mean"), InputKind::kState);
  EXPECT_EQ(imported->graph.FindInput("padding"), nullptr);
  EXPECT_THAT(imported->notes, Contains(HasSubstr("ConstantOfShape nodes fill: 5")));

  std::vector<std::string> notes;
  auto trained =
      RoundTrip(model, {{"w", Floats({2, 3, 1, 1}, {1, 2, 3, 4, 5, 6})}, {"bias", Floats({2}, {0.25, 0.25})}}, &notes);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_THAT(notes, ElementsAre("1 ConstantOfShape nodes became initializers"));  // the bias is unchanged
  EXPECT_EQ(trained->graph().node_size(), model.graph().node_size() - 1);
  EXPECT_EQ(trained->graph().input_size(), model.graph().input_size() + 1);  // IR 3 lists initializers as inputs
  auto again = ImportModel(*trained);
  ASSERT_TRUE(again.ok()) << again.status();
  for (const ImportedWeight& w : again->weights) {
    if (w.name == "w") {
      EXPECT_THAT(w.value.ToDoubles(), ElementsAre(1, 2, 3, 4, 5, 6));
    } else if (w.name == "bias") {
      EXPECT_THAT(w.value.ToDoubles(), ElementsAre(0.25, 0.25));
    }
  }
}

TEST(FilledWeights, HugeOnesAreRefused) {
  onnx::ModelProto model = NewModel(9);
  AddInput(&model, "x", {-1, 1 << 15});
  FillInts(AddInitializer(&model, "shape", {2}, 7), {1 << 15, 1 << 15});
  AddNode(&model, "ConstantOfShape", {"shape"}, {"w"}, "bomb");
  AddNode(&model, "MatMul", {"x", "w"}, {"y"});
  AddOutput(&model, "y");
  EXPECT_THAT(Message(ImportModel(model).status()), HasSubstr("'bomb'"));
}

void FillDoubles(onnx::TensorProto* tensor, const std::vector<double>& values) {
  for (double value : values) tensor->add_double_data(value);
}

constexpr int kDouble = 11;

TEST(Float64, ModelsAreTrainedInFloat32AndStoredAsTheyWere) {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "x", {-1, 2}, kDouble);
  FillDoubles(AddInitializer(&model, "w", {2, 2}, kDouble), {1, 2, 3, 4});
  FillDoubles(AddInitializer(&model, "half", {}, kDouble), {0.5});
  AddNode(&model, "MatMul", {"x", "w"}, {"a"});
  AddNode(&model, "Mul", {"a", "half"}, {"y"});
  AddOutput(&model, "y");
  auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(imported->weights.size(), 1u);
  EXPECT_EQ(imported->weights[0].value.dtype(), DType::kFloat32);
  EXPECT_EQ(GetInputKind(*imported, "w"), InputKind::kParameter);
  EXPECT_EQ(imported->graph.type(imported->graph.FindInput("x")->value).dtype, DType::kFloat64);  // as the file has it
  EXPECT_EQ(imported->graph.type(imported->graph.FindOutput("y")->value).dtype, DType::kFloat32);
  EXPECT_THAT(imported->notes, Contains(HasSubstr("float64 weights: 1, trained as float32")));

  auto trained = RoundTrip(model, {{"w", Floats({2, 2}, {1, 2.5, 3, 4})}});
  ASSERT_TRUE(trained.ok()) << trained.status();
  const onnx::TensorProto& w = trained->graph().initializer(0);
  EXPECT_EQ(w.data_type(), kDouble);
  auto again = ImportModel(*trained);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_THAT(again->weights[0].value.ToDoubles(), ElementsAre(1, 2.5, 3, 4));
}

TEST(Float64, NumbersAreWeightsWhereNothingIsFloat32) {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "x", {-1, 1}, kDouble);
  FillDoubles(AddInitializer(&model, "w", {1, 1}, kDouble), {2});
  FillDoubles(AddInitializer(&model, "b", {1}, kDouble), {1});
  AddNode(&model, "Gemm", {"x", "w", "b"}, {"y"});
  AddOutput(&model, "y");
  auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(imported->weights.size(), 2u);
  for (const ImportedWeight& weight : imported->weights) EXPECT_EQ(weight.value.dtype(), DType::kFloat32);
  EXPECT_EQ(imported->graph.type(imported->graph.FindOutput("y")->value).dtype, DType::kFloat32);

  // A float32 weight beside them, also one in a Constant node.
  onnx::TensorProto* stored = SetTensor(AddNode(&model, "Constant", {}, {"c"}), "value");
  stored->set_data_type(1);
  stored->add_dims(2);
  FillFloats(stored, {1, 2});
  AddNode(&model, "Mul", {"c", "c"}, {"z"});
  AddOutput(&model, "z");
  imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->graph.type(imported->graph.FindOutput("y")->value).dtype, DType::kFloat64);
}

TEST(Float64, WeightsWithinFloat32AreCastWhereTheGraphCastsThem) {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "x", {-1, 2});
  FillDoubles(AddInitializer(&model, "w", {2, 2}, kDouble), {1, 2, 3, 4});
  FillFloats(AddInitializer(&model, "v", {2, 2}), {1, 2, 3, 4});
  SetInt(AddNode(&model, "Cast", {"x"}, {"wide"}), "to", kDouble);
  AddNode(&model, "MatMul", {"wide", "w"}, {"a"});
  SetInt(AddNode(&model, "Cast", {"a"}, {"narrow"}), "to", 1);
  AddNode(&model, "MatMul", {"narrow", "v"}, {"y"});
  AddOutput(&model, "y");
  auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(GetInputKind(*imported, "w"), InputKind::kParameter);
  EXPECT_EQ(GetInputKind(*imported, "v"), InputKind::kParameter);
  EXPECT_THAT(imported->notes, Contains(HasSubstr("float64 weights: 1, ")));
}

TEST(Float64, PositionsOfFloat32ModelsStayAsTheyAre) {
  onnx::ModelProto model = LinearModel();
  model.mutable_graph()->mutable_node(0)->set_input(0, "narrow");
  SetInt(AddNode(&model, "Cast", {"x"}, {"wide"}), "to", kDouble);
  SetInt(AddNode(&model, "Cast", {"wide"}, {"narrow"}), "to", 1);
  auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  bool computes_wide = false;
  for (const Node& node : imported->graph.nodes())
    computes_wide |= imported->graph.type(node.outputs[0]).dtype == DType::kFloat64;
  EXPECT_TRUE(computes_wide);
}

TEST(Ties, AreReported) {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "x", {-1, 2});
  FillFloats(AddInitializer(&model, "w", {2, 3}), {1, 2, 3, 4, 5, 6});
  FillFloats(AddInitializer(&model, "wt", {3, 2}), {1, 4, 2, 5, 3, 6});
  FillFloats(AddInitializer(&model, "other", {2, 3}), {1, 2, 3, 4, 5, 7});
  AddNode(&model, "MatMul", {"x", "w"}, {"a"});
  AddNode(&model, "MatMul", {"a", "wt"}, {"b"});
  AddNode(&model, "MatMul", {"b", "other"}, {"c"});
  AddNode(&model, "MatMul", {"b", "w"}, {"d"});
  AddNode(&model, "Add", {"c", "d"}, {"y"});
  AddOutput(&model, "y");
  auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->weights.size(), 3u);  // w has two readers and is one weight
  EXPECT_THAT(imported->notes, Contains(HasSubstr("'w' and 'wt' (transposed)")));
  EXPECT_THAT(imported->notes, Contains(HasSubstr("several readers: 1")));
  EXPECT_THAT(imported->notes, Not(Contains(HasSubstr("'other'"))));
}

onnx::SparseTensorProto* AddSparse(onnx::ModelProto* model, const std::vector<int64_t>& indices) {
  onnx::SparseTensorProto* sparse = model->mutable_graph()->add_sparse_initializer();
  sparse->add_dims(2), sparse->add_dims(3);
  sparse->mutable_values()->set_name("s");
  sparse->mutable_values()->set_data_type(1);
  sparse->mutable_values()->add_dims(2);
  FillFloats(sparse->mutable_values(), {5, 7});
  sparse->mutable_indices()->set_data_type(7);
  sparse->mutable_indices()->add_dims(2);
  if (indices.size() == 4) sparse->mutable_indices()->add_dims(2);
  FillInts(sparse->mutable_indices(), indices);
  return sparse;
}

onnx::ModelProto SparseModel(const std::vector<int64_t>& indices) {
  onnx::ModelProto model = LinearModel();
  AddSparse(&model, indices);
  model.mutable_graph()->mutable_node(0)->set_input(1, "s");
  return model;
}

TEST(Sparse, IsDenseAtImportAndUntouchedOnExport) {
  for (const std::vector<int64_t>& indices : {std::vector<int64_t>{1, 5}, {0, 1, 1, 2}}) {
    const onnx::ModelProto model = SparseModel(indices);
    auto imported = ImportModel(model);
    ASSERT_TRUE(imported.ok()) << imported.status();
    EXPECT_EQ(imported->graph.FindInput("s"), nullptr);  // a constant
    EXPECT_THAT(imported->notes, Contains(HasSubstr("sparse initializers: 1")));
    EXPECT_THAT((*LoadModel(model))->Initializer("s")->ToDoubles(), ElementsAre(0, 5, 0, 0, 0, 7));
    auto trained = RoundTrip(model, {{"b", Floats({3}, {0, 0, 1})}});
    ASSERT_TRUE(trained.ok()) << trained.status();
    EXPECT_EQ(trained->graph().sparse_initializer(0).SerializeAsString(),
              model.graph().sparse_initializer(0).SerializeAsString());
  }
}

TEST(Sparse, BadIndices) {
  for (const std::vector<int64_t>& indices :
       {std::vector<int64_t>{5, 1}, {1, 1}, {-1, 1}, {1, 6}, {0, 3, 1, 0}, {0, 1, 2, 0}, {1, 2, 3}}) {
    EXPECT_THAT(Message(LoadModel(SparseModel(indices)).status()), HasSubstr("sparse initializer 's'"));
  }
}

TEST(Versions, AMissingOpsetIsAssumedAloud) {
  onnx::ModelProto model = LinearModel();
  model.clear_opset_import();
  auto imported = ImportModel(model);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(imported->notes, Contains(HasSubstr("taken for opset 18")));
}

void ImportAlso(onnx::ModelProto* model, const std::string& domain, int64_t version) {
  onnx::OperatorSetIdProto* opset = model->add_opset_import();
  opset->set_domain(domain);
  opset->set_version(version);
}

// x [2,3,4] → `op` of 'x' alone, in opset 19 and another one.
onnx::ModelProto TwoOpsets(const std::string& op, int64_t other, std::optional<int64_t> axis,
                           const std::vector<int64_t>& dims = {2, 3, 4}) {
  onnx::ModelProto model = NewModel(19);
  ImportAlso(&model, "ai.onnx", other);
  AddInput(&model, "x", dims);
  onnx::NodeProto* node = AddNode(&model, op, {"x"}, {"y"}, "node");
  if (axis.has_value()) SetInt(node, "axis", *axis);
  AddOutput(&model, "y");
  return model;
}

TEST(Versions, TheNewestOfSeveralIsTakenWhereAllMeanTheSame) {
  for (const char* domain : {"", "ai.onnx"}) {
    onnx::ModelProto model = LinearModel();
    ImportAlso(&model, domain, 9);
    ImportAlso(&model, "", 11);
    auto imported = ImportModel(model);
    ASSERT_TRUE(imported.ok()) << imported.status();
    EXPECT_THAT(imported->notes,
                Contains("imports domain 'ai.onnx' in the versions 9 to 13: taken for 13, as its operators mean the "
                         "same in both"));
    EXPECT_EQ((*LoadModel(model))->opsets().at(""), 13);
    auto trained = RoundTrip(model, {{"b", Floats({3}, {0, 0, 1})}});
    ASSERT_TRUE(trained.ok()) << trained.status();
    EXPECT_EQ(trained->opset_import_size(), 3);
  }
  for (const onnx::ModelProto& model :
       {TwoOpsets("Softmax", 12, -1), TwoOpsets("Softmax", 12, 2), TwoOpsets("LogSoftmax", 12, {}, {2, 3}),
        TwoOpsets("Softmax", 13, {}), TwoOpsets("Dropout", 12, {}), TwoOpsets("Dropout", 9, {})}) {
    const auto imported = ImportModel(model);
    EXPECT_TRUE(imported.ok()) << imported.status();
  }
}

TEST(Versions, ANodeThatSeveralMakeDifferentIsRefused) {
  for (const onnx::ModelProto& model :
       {TwoOpsets("Softmax", 12, {}), TwoOpsets("Softmax", 12, 1), TwoOpsets("Hardmax", 12, 0)}) {
    EXPECT_THAT(Message(ImportModel(model).status()),
                AllOf(HasSubstr("max 'node'] means one thing in opset 19 and another in 12")));
  }
}

TEST(Versions, FunctionsMayImportSeveral) {
  for (const auto& [op, good] : {std::pair("Relu", true), {"Softmax", false}}) {
    onnx::ModelProto model = NewModel(19);
    AddInput(&model, "x", {2, 3, 4});
    onnx::FunctionProto* function = model.add_functions();
    function->set_domain("mine");
    function->set_name("f");
    function->add_input("a");
    function->add_output("b");
    function->add_opset_import()->set_version(12);
    function->add_opset_import()->set_version(19);
    onnx::NodeProto* inner = function->add_node();
    inner->set_op_type(op);
    inner->add_input("a");
    inner->add_output("b");
    AddNode(&model, "f", {"x"}, {"y"}, "call")->set_domain("mine");
    AddOutput(&model, "y");
    const auto imported = ImportModel(model);
    EXPECT_EQ(imported.ok(), good) << op << " " << imported.status();
    if (good) {
      EXPECT_THAT(imported->notes, Contains(HasSubstr("function 'f': imports domain 'ai.onnx'")));
    }
  }
}

// Low precision: float32 masters inside, the types of the file outside.
TEST(Half, BoundaryKeepsItsTypes) {
  for (const auto& [onnx_type, dtype] : {std::pair(10, DType::kFloat16), {16, DType::kBFloat16}}) {
    onnx::ModelProto model = NewModel();
    AddInput(&model, "x", {-1, 2}, onnx_type);
    onnx::TensorProto* w = AddInitializer(&model, "w", {2, 1}, onnx_type);
    w->add_int32_data(0x3f80), w->add_int32_data(0x3f80);
    AddNode(&model, "MatMul", {"x", "w"}, {"y"});
    AddOutput(&model, "y");
    model.mutable_graph()->mutable_output(0)->mutable_type()->mutable_tensor_type()->set_elem_type(onnx_type);
    auto imported = ImportModel(model);
    ASSERT_TRUE(imported.ok()) << imported.status();
    EXPECT_EQ(imported->graph.type(imported->graph.FindInput("x")->value).dtype, dtype);
    // Losses read float32; predictions are rounded like those of the exported model.
    const Graph predict = BuildPredict(*imported);
    EXPECT_EQ(predict.type(predict.FindOutput("y")->value).dtype, dtype);
    EXPECT_EQ(imported->graph.type(imported->graph.FindInput("w")->value).dtype, DType::kFloat32);
    EXPECT_EQ(imported->graph.type(imported->graph.FindOutput("y")->value).dtype, DType::kFloat32);
    auto trained = RoundTrip(model, {{"w", Floats({2, 1}, {0.5, -2})}});
    ASSERT_TRUE(trained.ok()) << trained.status();
    EXPECT_EQ(trained->graph().initializer(0).data_type(), onnx_type);
    EXPECT_THAT((*LoadModel(*trained))->Initializer("w")->ToDoubles(), ElementsAre(0.5, -2));
  }
}

// The cache of a decoder is empty in training, for any batch.
TEST(Caches, OfNoLengthFollowTheBatch) {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "k", {-1, 2, 3, 8});
  AddInput(&model, "past", {-1, 2, -1, 8});
  SetInt(AddNode(&model, "Concat", {"past", "k"}, {"present"}), "axis", 2);
  AddNode(&model, "Relu", {"present"}, {"y"});
  AddOutput(&model, "y");
  ImportOptions options{.batch = 4};
  options.fixed_inputs["past"] = HostTensor({DType::kFloat32, {1, 2, 0, 8}});
  auto imported = ImportModel(model, options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->graph.type(imported->graph.FindOutput("y")->value).shape, (Shape{4, 2, 3, 8}));
  EXPECT_EQ(imported->graph.FindInput("past"), nullptr);
}

TEST(Outputs, InternalOnesNeedOnlyTheirInputs) {
  onnx::ModelProto model = LinearModel();
  AddInput(&model, "boxes", {-1, 4});
  AddNode(&model, "NotAnOperator", {"y", "boxes"}, {"picked"});
  AddOutput(&model, "picked");
  auto loaded = LoadModel(model);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_EQ((*loaded)->FindInputs({"y"}).size(), 1u);
  EXPECT_EQ((*loaded)->FindInputs({"y"})[0].name, "x");
  EXPECT_EQ((*loaded)->FindInputs({"picked"}).size(), 2u);
  auto imported = Import(**loaded, {.outputs = {"xw"}});
  ASSERT_TRUE(imported.ok()) << imported.status();
}

// A shape that is also a weight, Identity chains, and initializers that IR 3 lists as inputs.
TEST(Weights, MayBeReadAsShapesToo) {
  onnx::ModelProto model = LinearModel();
  AddNode(&model, "Identity", {"w"}, {"w1"}), AddNode(&model, "Identity", {"w1"}, {"w2"});
  model.mutable_graph()->mutable_node(0)->set_input(1, "w2");
  AddNode(&model, "Shape", {"w"}, {"shape"});
  FillInts(AddInitializer(&model, "last", {1}, 7), {1});
  AddNode(&model, "Gather", {"shape", "last"}, {"three"});
  FillInts(AddInitializer(&model, "free", {1}, 7), {-1});
  SetInt(AddNode(&model, "Concat", {"free", "three"}, {"target"}), "axis", 0);
  AddNode(&model, "Reshape", {"y", "target"}, {"z"});
  AddOutput(&model, "z");
  AddInput(&model, "w", {2, 3}), AddInput(&model, "b", {3});
  for (auto& node : *model.mutable_graph()->mutable_node()) node.clear_name();
  auto imported = ImportModel(model, {.batch = 4});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(GetInputKind(*imported, "b"), InputKind::kParameter);
  EXPECT_EQ(imported->weights.size(), 2u);
  EXPECT_EQ(imported->graph.type(imported->graph.FindOutput("z")->value).shape, (Shape{4, 3}));
}

// Some converters write a Constant for each of its users, under one name.
TEST(Constants, MayRepeatAValueButNotChangeIt) {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "x", {-1, 2});
  const auto constant = [&](const std::vector<float>& values) {
    onnx::TensorProto* value = SetTensor(AddNode(&model, "Constant", {}, {"c"}), "value");
    value->set_data_type(1);
    value->add_dims(2);
    FillFloats(value, values);
  };
  constant({1, 2});
  constant({1, 2});
  AddNode(&model, "Add", {"x", "c"}, {"y"});
  AddOutput(&model, "y");
  const auto imported = ImportModel(model);
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(imported->weights.size(), 1u);
  EXPECT_THAT(imported->weights[0].value.ToDoubles(), ElementsAre(1, 2));
  constant({1, 3});
  EXPECT_THAT(Message(LoadModel(model).status()), HasSubstr("defines 'c', which"));
}

}  // namespace
}  // namespace onnxtrain
