// Loss and update rule of a model's training_info, and training graphs that are written as one.
#include <gmock/gmock.h>
#include <onnx/onnx_pb.h>

#include <nlohmann/json.hpp>
#include <span>

#include "frontend/base/strings.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/onnx/import.h"
#include "frontend/ops/host_eval.h"
#include "tests/tools/blobs.h"
#include "tests/tools/run_scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Tensors = std::map<std::string, HostTensor>;

constexpr char kDomain[] = "ai.onnx.preview.training";

onnx::NodeProto& AddNode(onnx::GraphProto* graph, const std::string& op, const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs, const std::string& domain = "") {
  onnx::NodeProto& node = *graph->add_node();
  node.set_op_type(op);
  node.set_domain(domain);
  for (const std::string& input : inputs) node.add_input(input);
  for (const std::string& output : outputs) node.add_output(output);
  return node;
}

void AddText(onnx::NodeProto* node, const std::string& name, const std::vector<std::string>& texts, bool list) {
  onnx::AttributeProto* attribute = node->add_attribute();
  attribute->set_name(name);
  attribute->set_type(list ? onnx::AttributeProto::STRINGS : onnx::AttributeProto::STRING);
  for (const std::string& text : texts) list ? attribute->add_strings(text) : attribute->set_s(text);
}

void AddNumber(onnx::NodeProto* node, const std::string& name, float number) {
  onnx::AttributeProto* attribute = node->add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::FLOAT);
  attribute->set_f(number);
}

class TrainingInfoRun : public RunScratch {
 protected:
  TrainingInfoRun() {
    tiny::Mlp(3).Save(Path("plain.onnx"));
    EXPECT_TRUE(WriteNpz(Path("d.npz"), Blobs(48)).ok());
    EXPECT_TRUE(model_.ParseFromString(ReadAll(Path("plain.onnx"))));
    onnx::OperatorSetIdProto* opset = model_.add_opset_import();
    opset->set_domain(kDomain);
    opset->set_version(1);
  }

  // Adds an algorithm: cross-entropy of y, its gradient, and a node of an optimizer over all weights.
  onnx::NodeProto& AddAlgorithm(const std::string& optimizer, const std::vector<std::string>& kinds) {
    onnx::GraphProto* graph = model_.add_training_info()->mutable_algorithm();
    graph->set_name("algorithm");
    onnx::TypeProto::Tensor* label = AddValue(graph->add_input(), "label", onnx::TensorProto::INT64);
    label->mutable_shape()->add_dim()->set_dim_param("batch");
    AddValue(graph->add_output(), "loss", onnx::TensorProto::FLOAT);
    AddConstant(graph, "R", 0.05f);
    AddConstant(graph, "T", 0);
    AddNode(graph, "SoftmaxCrossEntropyLoss", {"y", "label"}, {"loss"});
    const std::vector<std::string> weights = {"w1", "b1", "w2", "b2"};
    std::vector<std::string> gradients, inputs = {"R", "T"}, outputs;
    for (const std::string& weight : weights) gradients.push_back("d_" + weight);
    onnx::NodeProto& gradient = AddNode(graph, "Gradient", weights, gradients, kDomain);
    AddText(&gradient, "xs", weights, true);
    AddText(&gradient, "y", {"loss"}, false);
    inputs.insert(inputs.end(), weights.begin(), weights.end());
    inputs.insert(inputs.end(), gradients.begin(), gradients.end());
    for (const std::string& weight : weights) outputs.push_back(weight + "_new");
    for (const std::string& kind : kinds) {
      for (const std::string& weight : weights) {
        inputs.push_back(StrCat(kind, "_", weight));
        outputs.push_back(StrCat(kind, "_", weight, "_new"));
      }
    }
    return AddNode(graph, optimizer, inputs, outputs, kDomain);
  }

  static onnx::TypeProto::Tensor* AddValue(onnx::ValueInfoProto* value, const std::string& name, int type) {
    value->set_name(name);
    value->mutable_type()->mutable_tensor_type()->set_elem_type(type);
    return value->mutable_type()->mutable_tensor_type();
  }

  static void AddConstant(onnx::GraphProto* graph, const std::string& name, float number) {
    onnx::TensorProto* tensor = graph->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(onnx::TensorProto::FLOAT);
    tensor->add_float_data(number);
  }

  void Save() const { WriteAll(Path("m.onnx"), model_.SerializeAsString()); }

  HostTensor Weight(const std::string& run, const std::string& name) const {
    const auto model = OnnxModel::Load(Path(run + "/model.onnx"));
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? (*model)->Initializer(name)->Clone() : HostTensor();
  }

  onnx::ModelProto model_;
  const std::string line_ = "--data d.npz --batch-size 12 --epochs 3 ";
};

void ExpectNear(const HostTensor& got, const HostTensor& want, double tolerance) {
  ASSERT_EQ(got.shape(), want.shape());
  for (int64_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got.At(i), want.At(i), tolerance) << i;
}

TEST_F(TrainingInfoRun, GivesLossOptimizerAndRate) {
  onnx::NodeProto& optimizer = AddAlgorithm("Momentum", {"v"});
  AddNumber(&optimizer, "alpha", 0.9f);
  AddNumber(&optimizer, "beta", 1);
  AddNumber(&optimizer, "norm_coefficient", 0.01f);
  AddText(&optimizer, "mode", {"standard"}, false);
  Save();
  const Outcome o = Run(line_ + "--model m.onnx --out got");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err + o.out, testing::HasSubstr("the model's training_info: Momentum (--optimizer)"));
  ASSERT_EQ(Run(line_ + "--model plain.onnx --loss cross_entropy --optimizer sgd --momentum 0.9 --weight-decay 0.01 "
                        "--no-decay none --lr 0.05 --max-grad-norm 0 --out want")
                .code,
            0);
  for (const char* name : {"w1", "b1", "w2", "b2"}) ExpectNear(Weight("got", name), Weight("want", name), 2e-6);
  EXPECT_NEAR(Summary("got")["final_loss"].get<double>(), Summary("want")["final_loss"].get<double>(), 1e-6);

  // The configuration of the run repeats it.
  ASSERT_EQ(Run("--flagfile got/config.flags --out again").code, 0);
  EXPECT_TRUE(Weight("again", "w1").SameBytes(Weight("got", "w1")));
  // The exported model keeps its training_info.
  EXPECT_THAT(Run("--model got/model.onnx --max-steps 1 --out more " + line_).err,
              testing::HasSubstr("training_info: Momentum"));
}

TEST_F(TrainingInfoRun, FlagsTakePrecedence) {
  AddAlgorithm("Adagrad", {"h"});
  Save();
  const Outcome o = Run(line_ + "--model m.onnx --optimizer adamw --lr 1e-2 --out a");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err + o.out, testing::HasSubstr("training_info: Adagrad is not taken over"));
  const Outcome own = Run(line_ + "--model m.onnx --optimizer onnx:model --lr 0.5 --loss cross_entropy --out b");
  ASSERT_EQ(own.code, 0) << own.err;
  EXPECT_LT(Summary("b")["final_loss"].get<double>(), 0.5);
}

TEST_F(TrainingInfoRun, AdamTrains) {
  AddAlgorithm("Adam", {"v", "h"});
  Save();
  const Outcome o = Run(line_ + "--model m.onnx --out a");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_LT(Summary("a")["final_loss"].get<double>(), 0.5);
}

// What is not understood is told, and the usual choices are made.
TEST_F(TrainingInfoRun, ProblemsAreTold) {
  const auto expect = [&](const std::string& part) {
    Save();
    const Outcome o = Run(line_ + "--model m.onnx --overwrite --out r");
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_THAT(o.err + o.out, testing::HasSubstr("training_info is not taken over: " + part));
    ExpectRefused(Run(line_ + "--model m.onnx --optimizer onnx:model --out s"), part);
    ExpectRefused(Run(line_ + "--model m.onnx --loss onnx:model --out s"), part);
  };
  model_.add_training_info();
  expect("its algorithm has no node Adam, Adagrad or Momentum");
  model_.clear_training_info();
  AddAlgorithm("Adam", {"v", "h"});
  model_.mutable_training_info(0)->mutable_algorithm()->mutable_node(0)->set_input(0, "hidden");
  expect("its loss reads 'hidden'");
  model_.mutable_training_info(0)->mutable_algorithm()->mutable_node()->DeleteSubrange(1, 1);
  expect("its algorithm has no node Gradient");
  model_.add_training_info();
  expect("it has several algorithms");
}

// The outputs of one step of a model whose state is in its initializers.
Tensors RunStep(const onnx::ModelProto& proto, const Tensors& state, const Tensors& feeds) {
  const std::string bytes = proto.SerializeAsString();
  const auto model = OnnxModel::LoadBytes(std::as_bytes(std::span(bytes)), "step");
  EXPECT_TRUE(model.ok()) << model.status();
  ImportOptions options{.batch = feeds.begin()->second.shape()[0]};
  options.conformance = true;
  const auto imported = Import(**model, options);
  EXPECT_TRUE(imported.ok()) << imported.status();
  Tensors inputs = feeds;
  for (const auto& [name, value] : state) inputs[name] = value;
  for (const ImportedWeight& weight : imported->weights) inputs.emplace(weight.name, weight.value);
  const auto values = Interpret(imported->graph, inputs);
  EXPECT_TRUE(values.ok()) << values.status();
  Tensors outputs;
  for (size_t i = 0; i < values->size(); ++i) outputs.emplace(imported->graph.outputs()[i].name, (*values)[i]);
  return outputs;
}

// What ONNX says an algorithm is: its graph behind that of the model.
onnx::ModelProto Combine(const onnx::ModelProto& model) {
  onnx::ModelProto combined = model;
  const onnx::GraphProto& algorithm = model.training_info(0).algorithm();
  combined.mutable_graph()->MergeFrom(algorithm);
  combined.clear_training_info();
  return combined;
}

TEST_F(TrainingInfoRun, TrainingGraphsAreWrittenAsOne) {
  const std::string graph = "export --model plain.onnx --data d.npz --optimizer adamw --lr 1e-2 --training-graph ";
  ASSERT_EQ(Run(graph + "t.onnx").code, 0);
  const Outcome o = Run(graph + "i.onnx --training-info");
  ASSERT_EQ(o.code, 0) << o.err;
  onnx::ModelProto plain, written;
  ASSERT_TRUE(plain.ParseFromString(ReadAll(Path("t.onnx"))));
  ASSERT_TRUE(written.ParseFromString(ReadAll(Path("i.onnx"))));
  ASSERT_EQ(written.training_info_size(), 1);
  const onnx::TrainingInfoProto& info = written.training_info(0);
  ASSERT_EQ(info.algorithm().input_size(), 1);
  EXPECT_EQ(info.algorithm().input(0).name(), "label");
  EXPECT_EQ(written.graph().input_size(), 1);
  EXPECT_EQ(written.graph().initializer_size() > 3, true);
  std::map<std::string, std::string> bindings;
  for (const auto& binding : info.update_binding()) bindings[binding.key()] = binding.value();
  EXPECT_EQ(bindings.at("w1"), "w1_new");
  EXPECT_EQ(bindings.size(), 4 * 3 + 1u) << "weights, two moments of each, the count of steps";

  const auto arrays = *ReadNpz(Path("d.npz"));
  Tensors all(arrays.begin(), arrays.end()), state, want_state;
  const onnx::ModelProto combined = Combine(written);
  for (int step = 0; step < 4; ++step) {
    const Tensors got = RunStep(combined, state, all), want = RunStep(plain, want_state, all);
    EXPECT_NEAR(got.at("loss").At(0), want.at("loss").At(0), 1e-6);
    EXPECT_TRUE(got.contains("y"));
    for (const auto& [name, value] : bindings) {
      ExpectNear(got.at(value), want.at(value), 1e-6);
      state[name] = got.at(value);
      want_state[name] = want.at(value);
    }
  }
  // The model by itself is the one that was there.
  const std::string data = " --data d.npz --batch-size 48 --quiet";
  ASSERT_EQ(Run("predict --model i.onnx --out i.csv" + data).code, 0);
  ASSERT_EQ(Run("predict --model plain.onnx --out p.csv" + data).code, 0);
  EXPECT_EQ(ReadAll(Path("i.csv")), ReadAll(Path("p.csv")));
  ExpectRefused(Run("export --model plain.onnx --data d.npz --gradient-graph g.onnx --training-info"),
                "--training-info");
}

// What outputs NAME_new are the next NAME.
Tensors NextState(const Tensors& outputs) {
  Tensors state;
  for (const auto& [name, value] : outputs) {
    if (name.ends_with("_new")) state[name.substr(0, name.size() - 4)] = value;
  }
  return state;
}

// Rules that the operators of ai.onnx.preview.training express are written in these, and read again without what the
// metadata says of them.
TEST_F(TrainingInfoRun, PreviewOperatorsAreWritten) {
  const auto arrays = *ReadNpz(Path("d.npz"));
  const Tensors all(arrays.begin(), arrays.end());
  for (const std::string rule : {"sgd", "sgd --momentum 0.9 --dampening 0.2", "sgd --momentum 0.8 --nesterov",
                                 "adagrad --weight-decay 0.01 --no-decay none"}) {
    SCOPED_TRACE(rule);
    const std::string flags = " --loss cross_entropy --max-grad-norm 0 --lr 0.05 --optimizer " + rule;
    ASSERT_EQ(Run("export --model plain.onnx --data d.npz --training-graph t.onnx" + flags).code, 0);
    ASSERT_EQ(Run("export --model plain.onnx --data d.npz --training-graph i.onnx --training-info" + flags).code, 0);
    onnx::ModelProto plain, written;
    ASSERT_TRUE(plain.ParseFromString(ReadAll(Path("t.onnx"))));
    ASSERT_TRUE(written.ParseFromString(ReadAll(Path("i.onnx"))));
    std::set<std::string> ops;
    for (const auto& node : written.training_info(0).algorithm().node()) {
      if (node.domain() == kDomain) ops.insert(node.op_type());
    }
    EXPECT_THAT(ops, testing::ElementsAre(rule.starts_with("sgd") ? "Gradient" : "Adagrad",
                                          rule.starts_with("sgd") ? "Momentum" : "Gradient"));
    EXPECT_EQ(written.training_info(0).update_binding_size(), 4 * 2 + 1) << "weights, a state of each, the step";
    const onnx::ModelProto combined = Combine(written);
    Tensors state, want_state;
    for (int step = 0; step < 4; ++step) {
      const Tensors got = RunStep(combined, state, all), want = RunStep(plain, want_state, all);
      EXPECT_NEAR(got.at("loss").At(0), want.at("loss").At(0), 1e-6);
      for (const char* name : {"w1_new", "b1_new", "w2_new", "b2_new"}) ExpectNear(got.at(name), want.at(name), 1e-6);
      state = NextState(got), want_state = NextState(want);
    }

    written.clear_metadata_props();
    WriteAll(Path("bare.onnx"), written.SerializeAsString());
    const Outcome o = Run(line_ + "--model bare.onnx --overwrite --out got");
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_THAT(o.err + o.out, testing::HasSubstr(rule.starts_with("sgd") ? "training_info: Momentum (--optimizer)"
                                                                          : "training_info: Adagrad (--optimizer)"));
    ASSERT_EQ(Run(line_ + "--model plain.onnx --overwrite --out want" + flags).code, 0);
    for (const char* name : {"w1", "b1", "w2", "b2"}) ExpectNear(Weight("got", name), Weight("want", name), 2e-6);
  }
}

// Others are written in plain operators: clipping, two decays, a loss on values that the model does not output.
TEST_F(TrainingInfoRun, OtherRulesStayPlain) {
  for (const std::string flags : {"--optimizer sgd", "--optimizer adamw --max-grad-norm 0",
                                  "--optimizer sgd --max-grad-norm 0 --weight-decay 0.1"}) {
    ASSERT_EQ(Run("export --model plain.onnx --data d.npz --training-graph i.onnx --training-info " + flags).code, 0);
    onnx::ModelProto written;
    ASSERT_TRUE(written.ParseFromString(ReadAll(Path("i.onnx"))));
    for (const auto& node : written.training_info(0).algorithm().node()) EXPECT_EQ(node.domain(), "") << flags;
  }
}

// A model whose training_info is ours is trained as it says.
TEST_F(TrainingInfoRun, WhatWasWrittenIsReadAgain) {
  const std::string rule =
      "--loss cross_entropy --optimizer sgd --momentum 0.9 --lr 0.05 --max-grad-norm 0.5 "
      "--freeze w1 --label-smoothing 0.1 ";
  ASSERT_EQ(Run("export --model plain.onnx --data d.npz --training-graph i.onnx --training-info " + rule).code, 0);
  const std::string batches = line_ + "--no-shuffle ";
  ASSERT_EQ(Run(batches + "--model plain.onnx --out want " + rule).code, 0);
  const Outcome o = Run(batches + "--model i.onnx --out got");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err + o.out, testing::HasSubstr("the model's training_info: --loss cross_entropy, --label-smoothing "
                                                "0.1, --optimizer sgd, --momentum 0.9, --lr 0.05"));
  for (const char* name : {"w1", "b1", "w2", "b2"}) ExpectNear(Weight("got", name), Weight("want", name), 1e-6);
  EXPECT_TRUE(Weight("got", "w1").SameBytes(Weight("want", "w1"))) << "frozen";
  EXPECT_NEAR(Summary("got")["final_loss"].get<double>(), Summary("want")["final_loss"].get<double>(), 1e-6);

  // The configuration of the run repeats it, and is a full one.
  EXPECT_THAT(ReadAll(Path("got/config.flags")), testing::HasSubstr("--momentum=0.9"));
  // The same graph is written of it again.
  ASSERT_EQ(Run("export --model i.onnx --data d.npz --training-graph again.onnx --training-info").code, 0);
  onnx::ModelProto first, again;
  ASSERT_TRUE(first.ParseFromString(ReadAll(Path("i.onnx"))));
  ASSERT_TRUE(again.ParseFromString(ReadAll(Path("again.onnx"))));
  ASSERT_EQ(again.metadata_props_size(), 1);
  EXPECT_EQ(again.metadata_props(0).value(), first.metadata_props(0).value());
  EXPECT_EQ(again.training_info(0).algorithm().node_size(), first.training_info(0).algorithm().node_size());
}

TEST_F(TrainingInfoRun, FlagsTakePrecedenceOverWhatWasWritten) {
  ASSERT_EQ(Run("export --model plain.onnx --data d.npz --training-graph i.onnx --training-info --optimizer sgd "
                "--momentum 0.9 --lr 0.05")
                .code,
            0);
  const Outcome rate = Run(line_ + "--model i.onnx --lr 0.01 --out rate");
  ASSERT_EQ(rate.code, 0) << rate.err;
  EXPECT_THAT(ReadAll(Path("rate/config.flags")), testing::HasSubstr("--momentum=0.9"));
  EXPECT_THAT(ReadAll(Path("rate/config.flags")), testing::HasSubstr("--lr=0.01"));
  const Outcome rule = Run(line_ + "--model i.onnx --optimizer adamw --out rule");
  ASSERT_EQ(rule.code, 0) << rule.err;
  EXPECT_THAT(ReadAll(Path("rule/config.flags")), testing::Not(testing::HasSubstr("--momentum")));
  EXPECT_THAT(ReadAll(Path("rule/config.flags")), testing::Not(testing::HasSubstr("--lr=0.05")));
}

// Settings of a file that someone else wrote change nothing but loss and rule, and wrong ones nothing at all.
TEST_F(TrainingInfoRun, WrongSettingsAreNotTaken) {
  const auto set = [&](const std::string& text) {
    model_.clear_metadata_props();
    auto* entry = model_.add_metadata_props();
    entry->set_key("onnxtrain.training_settings");
    entry->set_value(text);
    Save();
  };
  for (const char* text : {"{", "[]", R"({"optimizer": "nothing"})", R"({"lr": ["x"]})", R"({"no_field": 1})"}) {
    set(text);
    const Outcome o = Run(line_ + "--model m.onnx --overwrite --out r");
    EXPECT_EQ(o.code, 0) << text << o.err;
    EXPECT_THAT(o.err + o.out, testing::Not(testing::HasSubstr("the model's training_info: "))) << text;
  }
  set(R"({"optimizer": "sgd", "epochs": 50, "out": "elsewhere"})");
  ASSERT_EQ(Run(line_ + "--model m.onnx --overwrite --out r").code, 0);
  EXPECT_EQ(Summary("r")["epochs"], 3);
  EXPECT_THAT(ReadAll(Path("r/config.flags")), testing::HasSubstr("--optimizer=sgd"));
}

}  // namespace
}  // namespace onnxtrain
