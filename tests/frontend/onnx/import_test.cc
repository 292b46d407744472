#include "frontend/onnx/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "frontend/base/strings.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/row.h"
#include "model_builder.h"
#include "tests/shared_files.h"

namespace onnxtrain {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

InputKind GetInputKind(const ImportedModel& model, const std::string& name) {
  return model.graph.FindInput(name)->kind;
}

std::vector<std::string> WeightNames(const ImportedModel& model) {
  std::vector<std::string> names;
  for (const ImportedWeight& w : model.weights) names.push_back(w.name);
  return names;
}

const Type& OutputType(const ImportedModel& model, const std::string& name) {
  return model.graph.type(model.graph.FindOutput(name)->value);
}

absl::StatusOr<std::vector<double>> Evaluate(const ImportedModel& model, std::map<std::string, HostTensor> feeds) {
  for (const ImportedWeight& w : model.weights) feeds[w.name] = w.value;
  auto outputs = Interpret(model.graph, feeds);
  if (!outputs.ok()) return outputs.status();
  return (*outputs)[0].ToDoubles();
}

TEST(Import, ALinearModel) {
  auto model = ImportModel(LinearModel(), {.batch = 2});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(Verify(model->graph).ok()) << Verify(model->graph);
  EXPECT_EQ(OutputType(*model, "y"), (Type{DType::kFloat32, {2, 3}}));
  EXPECT_THAT(WeightNames(*model), ElementsAre("w", "b"));
  EXPECT_EQ(GetInputKind(*model, "w"), InputKind::kParameter);
  EXPECT_EQ(GetInputKind(*model, "x"), InputKind::kFeed);
  EXPECT_EQ(model->weights[0].consumer, "MatMul product");
  EXPECT_EQ(*model->graph.nodes()[0].source, "product");
  EXPECT_EQ(model->graph.value(model->graph.nodes()[0].outputs[0]).name, "xw");
  auto y = Evaluate(*model, {{"x", Floats({2, 2}, {1, 1, 0, 1})}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT(*y, ElementsAre(12, 15, 18, 11, 13, 15));
}

TEST(Import, Float64ConvertsWeightsInputsAndCasts) {
  onnx::ModelProto proto = LinearModel();
  proto.mutable_graph()->mutable_output(0)->set_name("z");
  SetInt(AddNode(&proto, "Cast", {"y"}, {"z"}), "to", 1);
  auto model = ImportModel(proto, {.batch = 1, .float_type = DType::kFloat64});
  ASSERT_TRUE(model.ok()) << model.status();
  for (const Value& value : model->graph.values()) EXPECT_EQ(value.type->dtype, DType::kFloat64);
  EXPECT_EQ(model->weights[0].value.dtype(), DType::kFloat64);
}

TEST(Import, HalfWeightsGetFloatMasters) {
  onnx::ModelProto proto = LinearModel();
  proto.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(10);
  for (auto& t : *proto.mutable_graph()->mutable_initializer()) {
    t.set_data_type(10);
    t.set_raw_data(std::string(t.raw_data().size() / 2, '\0'));
  }
  auto model = ImportModel(proto);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->weights[0].value.dtype(), DType::kFloat32);
  EXPECT_EQ(OutputType(*model, "y").dtype, DType::kFloat32);
}

TEST(Import, UnsupportedOperatorsAreCollected) {
  onnx::ModelProto proto = LinearModel();
  AddNode(&proto, "Weird", {"y"}, {"a"}, "one");
  AddNode(&proto, "Weird", {"a"}, {"b2"}, "two")->set_domain("com.strange");
  AddNode(&proto, "Weird", {"b2"}, {"c"}, "three");
  AddNode(&proto, "Weird", {"y"}, {"unread"}, "four");
  AddOutput(&proto, "c");
  const absl::Status status = ImportModel(proto).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("Weird (2: 'one', 'three')"), HasSubstr("com.strange.Weird (1: 'two')")));
  const std::vector<NodeFailure> failures = GetImportFailures(status);
  ASSERT_EQ(failures.size(), 2u);
  EXPECT_EQ(failures[0].unsupported_op, "Weird");
  EXPECT_EQ(failures[0].message, "Weird is not supported: 'one', 'three'");
  EXPECT_EQ(failures[1].unsupported_op, "com.strange.Weird");
}

TEST(Import, OutputsCutUnsupportedOperatorsOff) {
  onnx::ModelProto proto = LinearModel();
  AddNode(&proto, "Weird", {"y"}, {"z"}, "one");
  proto.mutable_graph()->mutable_output(0)->set_name("z");
  EXPECT_FALSE(ImportModel(proto).ok());
  auto model = ImportModel(proto, {.outputs = {"xw"}});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->outputs, ElementsAre("xw"));
  EXPECT_THAT(WeightNames(*model), ElementsAre("w"));
  EXPECT_THAT(Message(ImportModel(proto, {.outputs = {"ghost"}}).status()), HasSubstr("ghost"));
}

TEST(Import, ErrorsOfNodesAreCollectedAndDoNotCascade) {
  onnx::ModelProto proto = LinearModel();
  AddNode(&proto, "MatMul", {"x", "b"}, {"bad1"}, "first");
  AddNode(&proto, "Add", {"xw", "w"}, {"bad2"}, "second");
  AddNode(&proto, "Add", {"bad1", "bad2"}, {"z"}, "third");
  AddOutput(&proto, "z");
  const absl::Status status = ImportModel(proto, {.batch = 5}).status();
  EXPECT_THAT(Message(status), AllOf(HasSubstr("'first'"), HasSubstr("'second'")));
  EXPECT_THAT(Message(status), testing::Not(HasSubstr("'third'")));
  const std::vector<NodeFailure> failures = GetImportFailures(status);
  ASSERT_EQ(failures.size(), 2u);
  EXPECT_THAT(failures[0].message, testing::StartsWith("[MatMul 'first'] "));
  EXPECT_THAT(failures[0].extents, ElementsAre(5, 2, 3));
  EXPECT_EQ(failures[0].unsupported_op, "");
}

// Of a shape that the model holds, the numbers.
TEST(Import, FailuresTellTheExtentsThatNodesDemand) {
  onnx::ModelProto proto = LinearModel();
  FillInts(AddInitializer(&proto, "shape", {3}, 7), {-1, 7, 2});
  AddNode(&proto, "Reshape", {"x", "shape"}, {"z"}, "folded");
  AddOutput(&proto, "z");
  const std::vector<NodeFailure> failures = GetImportFailures(ImportModel(proto, {.batch = 5}).status());
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_THAT(failures[0].extents, ElementsAre(5, 2, 7, 2));
}

TEST(Import, FreeDims) {
  onnx::ModelProto proto = NewModel();
  AddInput(&proto, "a", {-1, -2});
  AddInput(&proto, "b", {-1, -2});
  AddNode(&proto, "Add", {"a", "b"}, {"y"});
  AddOutput(&proto, "y");
  EXPECT_THAT(Message(ImportModel(proto, {.batch = 3}).status()),
              AllOf(HasSubstr("input 'a'"), HasSubstr("`dim` N2=N")));
  auto named = ImportModel(proto, {.dim_values = {{"N2", 7}}, .batch = 3});
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(OutputType(*named, "y").shape, (Shape{3, 7}));
  auto given = ImportModel(proto, {.input_shapes = {{"a", {4, 9}}}});
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(OutputType(*given, "y").shape, (Shape{4, 9}));
  auto both = ImportModel(proto, {.input_shapes = {{"a", {4, 9}}}, .batch = 6});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(OutputType(*both, "y").shape, (Shape{6, 9}));
  EXPECT_THAT(Message(ImportModel(proto, {.input_shapes = {{"c", {1}}}}).status()), HasSubstr("no input 'c'"));
  EXPECT_THAT(Message(ImportModel(proto, {.input_shapes = {{"a", {1}}}}).status()), HasSubstr("cannot be [1]"));
}

TEST(Import, FixedInputsAreConstants) {
  onnx::ModelProto proto = NewModel();
  AddInput(&proto, "x", {2, 3});
  AddInput(&proto, "shape", {1}, 7);
  AddNode(&proto, "Reshape", {"x", "shape"}, {"y"});
  AddOutput(&proto, "y");
  EXPECT_FALSE(ImportModel(proto).ok());
  auto model = ImportModel(proto, {.fixed_inputs = {{"shape", HostTensor::FromInts({6})}}});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(OutputType(*model, "y").shape, (Shape{6}));
  EXPECT_EQ(model->graph.inputs().size(), 1u);
}

// Shape → Gather → Unsqueeze → Concat → Reshape, as PyTorch exports x.view(x.size(0), -1).
TEST(Import, ShapeComputationsVanish) {
  onnx::ModelProto proto = NewModel();
  AddInput(&proto, "x", {-1, 4, 5});
  AddNode(&proto, "Shape", {"x"}, {"s"});
  onnx::TensorProto* zero = SetTensor(AddNode(&proto, "Constant", {}, {"zero"}), "value");
  zero->set_data_type(7);
  zero->add_int64_data(0);
  AddNode(&proto, "Gather", {"s", "zero"}, {"n"});
  FillInts(AddInitializer(&proto, "axes", {1}, 7), {0});
  FillInts(AddInitializer(&proto, "rest", {1}, 7), {-1});
  AddNode(&proto, "Unsqueeze", {"n", "axes"}, {"n1"});
  SetInt(AddNode(&proto, "Concat", {"n1", "rest"}, {"target"}), "axis", 0);
  AddNode(&proto, "Reshape", {"x", "target"}, {"y"});
  AddOutput(&proto, "y");
  auto model = ImportModel(proto, {.batch = 8});
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ(model->graph.nodes().size(), 1u);
  EXPECT_EQ(model->graph.nodes()[0].op, "Reshape");
  EXPECT_EQ(OutputType(*model, "y").shape, (Shape{8, 20}));
}

TEST(Import, WeightsAndConstants) {
  onnx::ModelProto proto = LinearModel();
  FillFloats(AddInitializer(&proto, "unread", {2}), {1, 2});
  FillFloats(AddInitializer(&proto, "half", {}), {0.5});
  FillFloats(AddInitializer(&proto, "low", {1}), {0});
  onnx::TensorProto* t = SetTensor(AddNode(&proto, "Constant", {}, {"c"}, "const"), "value");
  t->set_data_type(1);
  t->add_dims(3);
  FillFloats(t, {1, 2, 3});
  AddNode(&proto, "Mul", {"y", "half"}, {"y1"});
  AddNode(&proto, "Add", {"y1", "c"}, {"y2"}, "shift");
  AddNode(&proto, "Max", {"y2", "low"}, {"z"});
  AddOutput(&proto, "z");
  auto model = ImportModel(proto);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(WeightNames(*model), ElementsAre("w", "b", "c"));
  EXPECT_EQ(model->weights[2].consumer, "Add shift");
}

TEST(Import, KnownWeightsAreNoParameters) {
  onnx::ModelProto proto = LinearModel();
  FillFloats(AddInitializer(&proto, "min", {}), {0});
  FillFloats(AddInitializer(&proto, "max", {1}), {6});
  AddNode(&proto, "Clip", {"y", "min", "max"}, {"z"});
  AddOutput(&proto, "z");
  auto model = ImportModel(proto);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(WeightNames(*model), ElementsAre("w", "b"));
  const Node& clip = model->graph.nodes().back();
  EXPECT_EQ(clip.op, "Clip");
  EXPECT_EQ(clip.attrs.Float("max"), 6);
}

// A weight that only reaches integers is not trained.
TEST(Import, WeightsBehindNoGradientAreFrozen) {
  onnx::ModelProto proto = LinearModel();
  SetInt(AddNode(&proto, "ArgMax", {"y"}, {"best"}), "axis", 1);
  proto.mutable_graph()->mutable_output(0)->set_name("best");
  auto model = ImportModel(proto);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(GetInputKind(*model, "w"), InputKind::kFrozen);
}

onnx::ModelProto BatchNormModel() {
  onnx::ModelProto proto = NewModel(15);
  AddInput(&proto, "x", {-1, 2, 4, 4});
  for (const char* name : {"scale", "bias", "mean", "var"}) FillFloats(AddInitializer(&proto, name, {2}), {1, 1});
  AddNode(&proto, "BatchNormalization", {"x", "scale", "bias", "mean", "var"}, {"y"}, "bn");
  AddOutput(&proto, "y");
  return proto;
}

TEST(Import, BatchNormStatisticsAreState) {
  auto training = ImportModel(BatchNormModel(), {.batch = 3, .training = true});
  ASSERT_TRUE(training.ok()) << training.status();
  EXPECT_TRUE(Verify(training->graph).ok()) << Verify(training->graph);
  ASSERT_EQ(training->state_updates.size(), 2u);
  for (const StateUpdate& update : training->state_updates) {
    EXPECT_EQ(GetInputKind(*training, update.state), InputKind::kState);
    EXPECT_EQ(training->graph.FindOutput(update.output)->into, training->graph.FindInput(update.state)->value);
  }
  EXPECT_EQ(GetInputKind(*training, "scale"), InputKind::kParameter);
  auto inference = ImportModel(BatchNormModel(), {.batch = 3});
  ASSERT_TRUE(inference.ok()) << inference.status();
  EXPECT_TRUE(inference->state_updates.empty());
  EXPECT_EQ(inference->graph.outputs().size(), 1u);
  EXPECT_EQ(GetInputKind(*inference, "mean"), InputKind::kState);
  auto frozen = ImportModel(BatchNormModel(), {.batch = 3, .training = true, .batch_norm_frozen = true});
  ASSERT_TRUE(frozen.ok()) << frozen.status();
  EXPECT_TRUE(frozen->state_updates.empty());
}

// Exporters merge initializers of equal bytes and read the copies through Identity nodes.
TEST(Import, MergedCopiesAreWeightsOfTheirOwn) {
  onnx::ModelProto proto = BatchNormModel();
  AddNode(&proto, "Identity", {"mean"}, {"mean2"});
  AddNode(&proto, "Identity", {"var"}, {"var2"});
  AddNode(&proto, "BatchNormalization", {"y", "scale", "bias", "mean2", "var2"}, {"z"}, "bn2");
  AddOutput(&proto, "z");
  auto model = ImportModel(proto, {.batch = 3, .training = true});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->state_updates.size(), 4u);
  EXPECT_EQ(GetInputKind(*model, "mean2"), InputKind::kState);
}

TEST(Import, TwoNodesMayNotUpdateOneState) {
  onnx::ModelProto proto = BatchNormModel();
  AddNode(&proto, "BatchNormalization", {"y", "scale", "bias", "mean", "var"}, {"z"}, "bn2");
  AddOutput(&proto, "z");
  EXPECT_THAT(Message(ImportModel(proto, {.batch = 3, .training = true}).status()), HasSubstr("'bn2'"));
  EXPECT_TRUE(ImportModel(proto, {.batch = 3}).ok());
}

TEST(Import, DropoutDrawsFromTheKeyOnlyInTraining) {
  onnx::ModelProto proto = LinearModel();
  AddNode(&proto, "Dropout", {"y"}, {"z"}, "drop");
  AddOutput(&proto, "z");
  auto training = ImportModel(proto, {.training = true, .dropout = 0.25});
  ASSERT_TRUE(training.ok()) << training.status();
  ASSERT_NE(training->random_key, "");
  EXPECT_EQ(training->graph.type(training->graph.FindInput(training->random_key)->value), (Type{DType::kUInt32, {4}}));
  auto inference = ImportModel(proto, {.dropout = 0.25});
  ASSERT_TRUE(inference.ok()) << inference.status();
  EXPECT_EQ(inference->random_key, "");
}

onnx::GraphProto* AddBranch(onnx::NodeProto* node, const std::string& name, const std::string& op,
                            const std::string& input) {
  onnx::AttributeProto* attribute = node->add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::GRAPH);
  onnx::NodeProto* inner = attribute->mutable_g()->add_node();
  inner->set_op_type(op);
  inner->add_input(input);
  inner->add_output("r");
  attribute->mutable_g()->add_output()->set_name("r");
  return attribute->mutable_g();
}

TEST(Import, ConstantIfFolds) {
  onnx::ModelProto proto = LinearModel();
  AddInitializer(&proto, "yes", {}, 9)->set_raw_data("\1");
  onnx::NodeProto* node = AddNode(&proto, "If", {"yes"}, {"z"}, "choice");
  AddBranch(node, "then_branch", "Relu", "y");
  AddBranch(node, "else_branch", "Weird", "y");
  AddOutput(&proto, "z");
  auto model = ImportModel(proto);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->graph.nodes().back().op, "Relu");
  AddInput(&proto, "runtime", {1}, 9);
  node->set_input(0, "runtime");
  EXPECT_THAT(Message(ImportModel(proto).status()), AllOf(HasSubstr("If 'choice'"), HasSubstr("run time")));
}

TEST(Import, FunctionsAreInlined) {
  onnx::ModelProto proto = LinearModel();
  onnx::FunctionProto* function = proto.add_functions();
  function->set_domain("mine");
  function->set_name("Leaky");
  function->add_input("a");
  function->add_output("r");
  function->add_attribute("slope");
  function->add_opset_import()->set_version(13);
  onnx::NodeProto* inner = function->add_node();
  inner->set_op_type("LeakyRelu");
  inner->add_input("a");
  inner->add_output("r");
  onnx::AttributeProto* alpha = inner->add_attribute();
  alpha->set_name("alpha");
  alpha->set_ref_attr_name("slope");
  alpha->set_type(onnx::AttributeProto::FLOAT);
  onnx::NodeProto* call = AddNode(&proto, "Leaky", {"y"}, {"z"}, "call");
  call->set_domain("mine");
  onnx::AttributeProto* slope = call->add_attribute();
  slope->set_name("slope");
  slope->set_type(onnx::AttributeProto::FLOAT);
  slope->set_f(0.5);
  AddOutput(&proto, "z");
  auto model = ImportModel(proto);
  ASSERT_TRUE(model.ok()) << model.status();
  const Node& node = model->graph.nodes().back();
  EXPECT_EQ(node.op, "LeakyRelu");
  EXPECT_EQ(node.attrs.Float("alpha"), 0.5);
  EXPECT_EQ(*node.source, "call/LeakyRelu_0");
}

// Each function calls the next one twice: 2^30 nodes from a few hundred bytes.
TEST(Import, MultiplyingFunctionsAreBounded) {
  onnx::ModelProto proto = LinearModel();
  for (int i = 0; i < 30; ++i) {
    onnx::FunctionProto* function = proto.add_functions();
    function->set_domain("mine");
    function->set_name(StrCat("f", i));
    function->add_input("a");
    function->add_output("c");
    function->add_opset_import()->set_version(13);
    for (auto [in, out] : {std::pair("a", "b"), {"b", "c"}}) {
      onnx::NodeProto* call = function->add_node();
      call->set_op_type(i == 29 ? "Relu" : StrCat("f", i + 1));
      if (i < 29) call->set_domain("mine");
      call->add_input(in);
      call->add_output(out);
    }
  }
  AddNode(&proto, "f0", {"y"}, {"z"})->set_domain("mine");
  AddOutput(&proto, "z");
  EXPECT_THAT(Message(ImportModel(proto).status()), HasSubstr("expands to more than"));
}

// A model exported for a batch of 1, which is in the target of a Reshape.
TEST(FrozenBatch, ReshapeTargetsFollow) {
  onnx::ModelProto proto = NewModel();
  AddInput(&proto, "x", {1, 2, 3});
  FillInts(AddInitializer(&proto, "target", {2}, 7), {1, 6});
  FillFloats(AddInitializer(&proto, "w", {6, 1}), {1, 1, 1, 1, 1, 1});
  AddNode(&proto, "Reshape", {"x", "target"}, {"flat"}, "flatten");
  AddNode(&proto, "MatMul", {"flat", "w"}, {"y"});
  AddOutput(&proto, "y");
  auto dims = proto.mutable_graph()->mutable_output(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
  dims->add_dim()->set_dim_value(1);
  dims->add_dim()->set_dim_value(1);
  auto model = ImportModel(proto, {.batch = 5});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(OutputType(*model, "y").shape, (Shape{5, 1}));
  EXPECT_THAT(model->notes, testing::Contains(HasSubstr("'flatten'")));
  auto one = ImportModel(proto);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(OutputType(*one, "y").shape, (Shape{1, 1}));
}

TEST(FrozenBatch, WhatDoesNotFollowIsRefused) {
  onnx::ModelProto proto = NewModel();
  AddInput(&proto, "x", {1, 4, 3});
  SetInts(AddNode(&proto, "Transpose", {"x"}, {"last"}, "move"), "perm", {1, 2, 0});
  FillInts(AddInitializer(&proto, "target", {2}, 7), {6, 2});
  AddNode(&proto, "Reshape", {"last", "target"}, {"y"}, "mix");
  AddOutput(&proto, "y");
  EXPECT_THAT(Message(ImportModel(proto, {.batch = 5}).status()), HasSubstr("[Reshape 'mix'] cannot reshape"));
  EXPECT_TRUE(ImportModel(proto).ok());
}

// Import must not allocate large constants that a small node declares.
TEST(Bombs, DeclaredTensorsAreNotAllocated) {
  for (const int64_t n : {int64_t{1} << 31, int64_t{1} << 39, int64_t{1} << 40, int64_t{1} << 62}) {
    onnx::ModelProto proto = NewModel();
    FillInts(AddInitializer(&proto, "shape", {1}, 7), {n});
    AddNode(&proto, "ConstantOfShape", {"shape"}, {"y"}, "bomb");
    AddOutput(&proto, "y");
    auto model = ImportModel(proto);
    if (!model.ok()) {
      EXPECT_THAT(Message(model.status()), HasSubstr("'bomb'"));
    } else {
      for (const Node& node : model->graph.nodes()) EXPECT_NE(NodeTag(node), "") << "an expression, not a tensor";
    }
  }
}

TEST(SharedModels, ImportForTrainingAtAnyBatch) {
  SKIP_WITHOUT_SHARED("models");
  struct Case {
    std::string file;
    size_t parameters;
    Shape output;
  };
  const Case cases[] = {
      {"mnist_cntk_opset8", 6, {4, 10}},          {"cnn_mnist_pytorch_opset9", 8, {4, 10}},
      {"keras_mnist_cnn_opset12", 8, {4, 10}},    {"mnist_burn_bn_opset16", 14, {4, 10}},
      {"mnist_softmax_tf_opset4", 2, {4, 10}},    {"test_training_model_opset12", 6, {4, 10}},
      {"unet_sed_opset18", 26, {4, 1, 224, 224}}, {"cifar_deep_kw_opset9", 12, {4, 10}},
  };
  for (const Case& c : cases) {
    auto loaded = OnnxModel::Load(SharedPath("models/" + c.file + ".onnx"));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    auto model = Import(**loaded, {.batch = 4, .training = true});
    ASSERT_TRUE(model.ok()) << c.file << ": " << model.status();
    EXPECT_TRUE(Verify(model->graph).ok()) << c.file << ": " << Verify(model->graph);
    const auto parameters = std::count_if(model->graph.inputs().begin(), model->graph.inputs().end(),
                                          [](const GraphInput& i) { return i.kind == InputKind::kParameter; });
    EXPECT_EQ(static_cast<size_t>(parameters), c.parameters) << c.file;
    EXPECT_EQ(model->graph.type(model->graph.outputs()[0].value).shape, c.output) << c.file;
  }
}

TEST(StraightThrough, SumsOfARoundedErrorAreEstimators) {
  onnx::ModelProto model = NewModel(17);
  AddInput(&model, "x", {2, 3});
  FillFloats(AddInitializer(&model, "w", {3, 3}), {1, 2, 3, 4, 5, 6, 7, 8, 9});
  AddNode(&model, "Round", {"w"}, {"rounded"});
  AddNode(&model, "Sub", {"rounded", "w"}, {"error"});
  AddNode(&model, "Add", {"w", "error"}, {"quantized"});
  AddNode(&model, "MatMul", {"x", "quantized"}, {"y"});
  AddOutput(&model, "y");
  const auto imported = ImportModel(model, {.training = true});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(imported->notes, testing::Contains(testing::StartsWith("sums x + (q(x) − x) of a step q: 1,")));
}

}  // namespace
}  // namespace onnxtrain
