// Tests the import of If, Loop, Scan, SequenceMap, sequences and optionals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "frontend/base/strings.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/row.h"
#include "frontend/passes/differentiate.h"
#include "model_builder.h"

namespace onnxtrain {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Names = std::vector<std::string>;

onnx::NodeProto* Add(onnx::GraphProto* graph, const std::string& op, const Names& inputs, const Names& outputs,
                     const std::string& name = "") {
  onnx::NodeProto* node = graph->add_node();
  node->set_op_type(op);
  node->set_name(name.empty() ? StrCat(op, graph->node_size()) : name);
  for (const std::string& input : inputs) node->add_input(input);
  for (const std::string& output : outputs) node->add_output(output);
  return node;
}

onnx::GraphProto* Body(onnx::NodeProto* node, const std::string& attribute, const Names& inputs, const Names& outputs) {
  onnx::AttributeProto* a = node->add_attribute();
  a->set_name(attribute);
  a->set_type(onnx::AttributeProto::GRAPH);
  for (const std::string& input : inputs) a->mutable_g()->add_input()->set_name(input);
  for (const std::string& output : outputs) a->mutable_g()->add_output()->set_name(output);
  return a->mutable_g();
}

void AddConstant(onnx::GraphProto* graph, const std::string& name, const std::vector<int64_t>& values, bool scalar,
                 int type = 7) {
  onnx::TensorProto* tensor = graph->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(type);
  if (!scalar) tensor->add_dims(static_cast<int64_t>(values.size()));
  for (int64_t v : values) {
    if (type == 7) tensor->add_int64_data(v);
    if (type == 9) tensor->add_int32_data(static_cast<int32_t>(v));
    if (type == 1) tensor->add_float_data(static_cast<float>(v));
  }
}

// Runs the graph and returns the outputs as lists of numbers.
absl::StatusOr<std::vector<std::vector<double>>> Evaluate(const ImportedModel& model,
                                                          std::map<std::string, HostTensor> feeds) {
  for (const ImportedWeight& w : model.weights) feeds[w.name] = w.value;
  auto outputs = Interpret(model.graph, feeds);
  if (!outputs.ok()) return outputs.status();
  std::vector<std::vector<double>> lists;
  for (const HostTensor& t : *outputs) lists.push_back(t.ToDoubles());
  return lists;
}

// y = x·w³ by a loop, and the value after each iteration. w is an initializer of the model.
onnx::ModelProto LoopModel(int64_t count) {
  onnx::ModelProto proto = NewModel();
  onnx::GraphProto* graph = proto.mutable_graph();
  AddInput(&proto, "x", {2});
  AddConstant(graph, "count", {count}, true);
  AddConstant(graph, "w", {2, 3}, false, 1);
  onnx::GraphProto* body = Body(Add(graph, "Loop", {"count", "", "x"}, {"y", "steps"}, "loop"), "body",
                                {"i", "go", "state"}, {"go", "next", "seen"});
  Add(body, "Mul", {"state", "w"}, {"next"});
  Add(body, "Identity", {"next"}, {"seen"});
  AddOutput(&proto, "y");
  AddOutput(&proto, "steps");
  return proto;
}

TEST(Control, LoopsUnrollAndShareTheirWeights) {
  auto model = ImportModel(LoopModel(3));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(Verify(model->graph).ok()) << Verify(model->graph);
  ASSERT_EQ(model->weights.size(), 1u);
  EXPECT_EQ(model->graph.FindInput("w")->kind, InputKind::kParameter);
  auto y = Evaluate(*model, {{"x", Floats({2}, {1, 10})}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT((*y)[0], ElementsAre(8, 270));
  EXPECT_THAT((*y)[1], ElementsAre(2, 30, 4, 90, 8, 270));
}

// Moves w into the body of the loop, as an initializer or as a Constant node, and returns where its values are.
onnx::TensorProto* MoveIntoBody(bool constant, onnx::ModelProto* proto) {
  onnx::GraphProto* graph = proto->mutable_graph();
  onnx::GraphProto* body = graph->mutable_node(0)->mutable_attribute(0)->mutable_g();
  onnx::TensorProto* moved = constant ? SetTensor(Add(body, "Constant", {}, {"w"}), "value") : body->add_initializer();
  moved->CopyFrom(graph->initializer(1));
  graph->mutable_initializer()->RemoveLast();
  return moved;
}

TEST(Control, WeightsOfBodiesAreTrainedAndStay) {
  for (const bool constant : {false, true}) {
    onnx::ModelProto proto = LoopModel(3);
    MoveIntoBody(constant, &proto);
    auto model = ImportModel(proto);
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_EQ(model->weights.size(), 1u);
    EXPECT_EQ(model->graph.FindInput("w")->kind, InputKind::kParameter);
    auto trained = RoundTrip(proto, {{"w", Floats({2}, {5, 7})}});
    ASSERT_TRUE(trained.ok()) << trained.status();
    auto again = ImportModel(*trained);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_THAT(again->weights.at(0).value.ToDoubles(), ElementsAre(5, 7));
    // Else as before: the values are where the file had them, and nowhere else.
    MoveIntoBody(constant, &(proto = LoopModel(3)))->CopyFrom([&] {
      const onnx::GraphProto& body = trained->graph().node(0).attribute(0).g();
      return constant ? body.node(body.node_size() - 1).attribute(0).t() : body.initializer(0);
    }());
    EXPECT_EQ(proto.SerializeAsString(), trained->SerializeAsString());
  }
}

TEST(Control, WeightsOfTwoBodiesWithOneNameStayFixed) {
  onnx::ModelProto proto = LoopModel(3);
  MoveIntoBody(false, &proto);
  onnx::NodeProto* second = proto.mutable_graph()->add_node();
  second->CopyFrom(proto.graph().node(0));
  second->set_name("second");
  second->set_input(2, "y");
  second->set_output(0, "z");
  second->set_output(1, "");
  AddConstant(proto.mutable_graph(), "v", {2, 3}, false, 1);
  Add(proto.mutable_graph(), "Mul", {"z", "v"}, {"scaled"});
  AddOutput(&proto, "scaled");
  auto model = ImportModel(proto, {.training = true});
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ(model->weights.size(), 1u);
  EXPECT_EQ(model->weights[0].name, "v");
  EXPECT_THAT(model->notes, testing::Contains(HasSubstr("within bodies of If, Loop or Scan: 2, not trained")));
}

TEST(Control, GradientsOfUnrolledStepsAddUp) {
  auto model = ImportModel(LoopModel(3), {.outputs = {"y"}});
  ASSERT_TRUE(model.ok()) << model.status();
  Builder b(&model->graph);
  const ValueId seed = b.Input(InputKind::kFeed, "dy", {DType::kFloat32, {2}}).id(),
                w = model->graph.FindInput("w")->value;
  const std::vector<Seed> seeds = {{model->graph.FindOutput("y")->value, seed}};
  auto grads = Differentiate(&model->graph, seeds, std::vector<ValueId>{w});
  ASSERT_TRUE(grads.ok()) << grads.status();
  model->graph.ClearOutputs();
  model->graph.AddOutput("dw", grads->at(w));
  auto dw = Evaluate(*model, {{"x", Floats({2}, {1, 10})}, {"dy", Floats({2}, {1, 1})}});
  ASSERT_TRUE(dw.ok()) << dw.status();
  EXPECT_THAT((*dw)[0], ElementsAre(3 * 4, 10 * 3 * 9));  // d(x·w³)/dw
}

TEST(Control, LoopsEndWithTheirCondition) {
  onnx::ModelProto proto = NewModel();
  onnx::GraphProto* graph = proto.mutable_graph();
  AddInput(&proto, "x", {1});
  AddConstant(graph, "yes", {1}, true, 9);
  AddConstant(graph, "four", {4}, true);
  onnx::GraphProto* body =
      Body(Add(graph, "Loop", {"", "yes", "x"}, {"y"}, "loop"), "body", {"i", "go", "x"}, {"more", "next"});
  Add(body, "Less", {"i", "four"}, {"more"});
  Add(body, "Add", {"x", "x"}, {"next"});  // the body's x, not the model's
  AddOutput(&proto, "y");
  auto model = ImportModel(proto);
  ASSERT_TRUE(model.ok()) << model.status();
  auto y = Evaluate(*model, {{"x", Floats({1}, {1})}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT((*y)[0], ElementsAre(32));
}

TEST(Control, ALoopThatRunsNotOnceGivesWhatItGot) {
  onnx::ModelProto proto = LoopModel(0);
  proto.mutable_graph()->mutable_output()->RemoveLast();
  auto model = ImportModel(proto);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Evaluate(*model, {{"x", Floats({2}, {1, 10})}}).value()[0], ElementsAre(1, 10));
  EXPECT_THAT(Message(ImportModel(LoopModel(0)).status()),
              AllOf(HasSubstr("Loop 'loop'"), HasSubstr("has no iterations")));
}

TEST(Control, LoopsOfUnknownOrEndlessLengthAreRefused) {
  onnx::ModelProto proto = LoopModel(3);
  proto.mutable_graph()->mutable_initializer(0)->set_name("other");
  AddInput(&proto, "count", {}, 7);
  EXPECT_THAT(Message(ImportModel(proto).status()),
              AllOf(HasSubstr("Loop 'loop'"), HasSubstr("trip count"), HasSubstr("run time")));
  EXPECT_THAT(Message(ImportModel(LoopModel(int64_t{1} << 40)).status()),
              AllOf(HasSubstr("Loop 'loop'"), HasSubstr("expand")));
}

// z = cond ? 1/x : x
onnx::ModelProto IfModel() {
  onnx::ModelProto proto = NewModel();
  onnx::GraphProto* graph = proto.mutable_graph();
  AddInput(&proto, "cond", {1}, 9);
  AddInput(&proto, "x", {2});
  onnx::NodeProto* node = Add(graph, "If", {"cond"}, {"z"}, "choice");
  Add(Body(node, "then_branch", {}, {"a"}), "Reciprocal", {"x"}, {"a"});
  Add(Body(node, "else_branch", {}, {"b"}), "Identity", {"x"}, {"b"});
  AddOutput(&proto, "z");
  return proto;
}

HostTensor Bool(bool value) { return HostTensor::Filled({DType::kBool, {1}}, value ? 1 : 0); }

TEST(Control, RunTimeConditionsChooseBetweenBothBranches) {
  auto model = ImportModel(IfModel());
  ASSERT_TRUE(model.ok()) << model.status();
  const HostTensor x = Floats({2}, {2, 4});
  EXPECT_THAT(Evaluate(*model, {{"cond", Bool(true)}, {"x", x}}).value()[0], ElementsAre(0.5, 0.25));
  EXPECT_THAT(Evaluate(*model, {{"cond", Bool(false)}, {"x", x}}).value()[0], ElementsAre(2, 4));
}

TEST(Control, BranchesMayDifferInTheAxesOfOneElement) {
  onnx::ModelProto proto = IfModel();
  onnx::NodeProto* node = proto.mutable_graph()->mutable_node(0);
  for (int i : {0, 1}) node->mutable_attribute(i)->mutable_g()->clear_node();
  AddConstant(node->mutable_attribute(0)->mutable_g(), "a", {5}, true, 1);
  AddConstant(node->mutable_attribute(1)->mutable_g(), "b", {7}, false, 1);
  auto model = ImportModel(proto);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->graph.type(model->graph.FindOutput("z")->value).shape, Shape{1});
  const HostTensor x = Floats({2}, {2, 4});
  EXPECT_THAT(Evaluate(*model, {{"cond", Bool(true)}, {"x", x}}).value()[0], ElementsAre(5));
  EXPECT_THAT(Evaluate(*model, {{"cond", Bool(false)}, {"x", x}}).value()[0], ElementsAre(7));
}

TEST(Control, BranchesOfDifferentTypesNeedAKnownCondition) {
  onnx::ModelProto proto = IfModel();
  onnx::GraphProto* otherwise = proto.mutable_graph()->mutable_node(0)->mutable_attribute(1)->mutable_g();
  otherwise->clear_node();
  AddConstant(otherwise, "b", {1, 2, 3}, false, 1);
  EXPECT_THAT(Message(ImportModel(proto).status()),
              AllOf(HasSubstr("If 'choice'"), HasSubstr("f32[2]"), HasSubstr("f32[3]")));
  auto fixed = ImportModel(proto, {.fixed_inputs = {{"cond", Bool(false)}}});
  EXPECT_TRUE(fixed.ok()) << fixed.status();
}

TEST(Control, ScansGoAlongAxesAndBackwards) {
  onnx::ModelProto proto = NewModel();
  onnx::GraphProto* graph = proto.mutable_graph();
  AddInput(&proto, "x", {2, 3});
  AddConstant(graph, "zero", {0, 0}, false, 1);
  onnx::NodeProto* node = Add(graph, "Scan", {"zero", "x"}, {"total", "sums"}, "scan");
  SetInt(node, "num_scan_inputs", 1);
  SetInts(node, "scan_input_axes", {-1});
  SetInts(node, "scan_input_directions", {1});
  SetInts(node, "scan_output_axes", {1});
  Add(Body(node, "body", {"sum", "column"}, {"next", "seen"}), "Add", {"sum", "column"}, {"next"});
  Add(node->mutable_attribute(4)->mutable_g(), "Identity", {"next"}, {"seen"});
  AddOutput(&proto, "total");
  AddOutput(&proto, "sums");
  auto model = ImportModel(proto);
  ASSERT_TRUE(model.ok()) << model.status();
  auto y = Evaluate(*model, {{"x", Floats({2, 3}, {1, 2, 3, 10, 20, 30})}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT((*y)[0], ElementsAre(6, 60));
  EXPECT_THAT((*y)[1], ElementsAre(3, 5, 6, 30, 50, 60));
}

// A sequence input "s" with elements s.0 …; outputs its last element and their concatenation.
onnx::ModelProto SequenceModel() {
  onnx::ModelProto proto = NewModel();
  onnx::GraphProto* graph = proto.mutable_graph();
  onnx::ValueInfoProto* input = graph->add_input();
  input->set_name("s");
  input->mutable_type()->mutable_sequence_type()->mutable_elem_type()->mutable_tensor_type()->set_elem_type(1);
  AddConstant(graph, "last", {-1}, true);
  Add(graph, "SequenceAt", {"s", "last"}, {"y"}, "at");
  SetInt(Add(graph, "ConcatFromSequence", {"s"}, {"all"}), "axis", 0);
  Add(graph, "SequenceErase", {"s", "last"}, {"rest"});
  for (const char* name : {"y", "all", "rest"}) AddOutput(&proto, name);
  return proto;
}

TEST(Control, SequenceInputsAreFeedsOfTheirElements) {
  auto model = ImportModel(SequenceModel(), {.list_inputs = {{"s", {.elements = {{1}, {2}}}}}});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->outputs, ElementsAre("y", "all", "rest.0"));
  auto y = Evaluate(*model, {{"s.0", Floats({1}, {1})}, {"s.1", Floats({2}, {2, 3})}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT(*y, ElementsAre(ElementsAre(2, 3), ElementsAre(1, 2, 3), ElementsAre(1)));
}

TEST(Control, SequencesMustBeKnownAndUsedAsSuch) {
  EXPECT_THAT(Message(ImportModel(SequenceModel()).status()), AllOf(HasSubstr("input 's'"), HasSubstr("sequence")));
  const ImportOptions empty = {.list_inputs = {{"s", {}}}};
  EXPECT_THAT(Message(ImportModel(SequenceModel(), empty).status()),
              AllOf(HasSubstr("SequenceAt 'at'"), HasSubstr("position -1")));
  onnx::ModelProto proto = SequenceModel();
  Add(proto.mutable_graph(), "Relu", {"s"}, {"z"}, "relu");
  AddOutput(&proto, "z");
  const ImportOptions one = {.list_inputs = {{"s", {.elements = {{1}}}}}};
  EXPECT_THAT(Message(ImportModel(proto, one).status()), AllOf(HasSubstr("Relu 'relu'"), HasSubstr("a sequence")));
}

}  // namespace
}  // namespace onnxtrain
