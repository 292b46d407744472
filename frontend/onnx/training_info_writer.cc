#include "frontend/onnx/training_info_writer.h"

#include <onnx/onnx_pb.h>

#include <map>
#include <set>
#include <span>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/onnx/model_proto.h"
#include "frontend/onnx/proto_util.h"

namespace onnxtrain {
namespace {

using Names = std::set<std::string, std::less<>>;

constexpr std::string_view kNew = "_new";

template <typename Values>
Names ListNames(const Values& values) {
  Names names;
  for (const auto& value : values) names.insert(value.name());
  return names;
}

// Removes what has one of the names.
template <typename Values>
void Erase(const Names& names, Values* values) {
  Values kept;
  for (auto& value : *values) {
    if (!names.contains(value.name())) *kept.Add() = std::move(value);
  }
  values->Swap(&kept);
}

Names ListValues(const onnx::GraphProto& graph) {
  Names names = ListNames(graph.input());
  names.merge(ListNames(graph.initializer()));
  for (const auto& node : graph.node()) names.insert(node.output().begin(), node.output().end());
  return names;
}

// Renames the constants and results of the step that are called as values of the model.
class Renamer {
 public:
  Renamer(const onnx::GraphProto& inference, onnx::GraphProto* step) : step_(*step) {
    const Names taken = ListValues(inference), inputs = ListNames(step->input());
    const auto add = [&](const std::string& name) {
      if (taken.contains(name) && !inputs.contains(name)) renamed_[name] = StrCat("training/", name);
    };
    for (const auto& tensor : step->initializer()) {
      if (!IsWeight(inference, tensor.name())) add(tensor.name());
    }
    for (const auto& node : step->node()) {
      for (const auto& output : node.output()) add(output);
    }
  }

  void Rename() {
    for (auto& tensor : *step_.mutable_initializer()) Apply(tensor.mutable_name());
    for (auto& value : *step_.mutable_output()) Apply(value.mutable_name());
    for (auto& node : *step_.mutable_node()) {
      for (auto& name : *node.mutable_input()) Apply(&name);
      for (auto& name : *node.mutable_output()) Apply(&name);
    }
  }

 private:
  // Frozen weights have one name in both; constants are numbered in each.
  bool IsWeight(const onnx::GraphProto& inference, const std::string& name) const {
    for (const auto& tensor : inference.initializer()) {
      if (tensor.name() != name) continue;
      for (const auto& own : step_.initializer()) {
        if (own.name() == name) return own.SerializeAsString() == tensor.SerializeAsString();
      }
    }
    return false;
  }

  void Apply(std::string* name) const {
    if (const auto it = renamed_.find(*name); it != renamed_.end()) *name = it->second;
  }

  onnx::GraphProto& step_;
  std::map<std::string, std::string, std::less<>> renamed_;
};

absl::StatusOr<std::shared_ptr<onnx::ModelProto>> Parse(const std::string& bytes) {
  return ParseModelProto(std::as_bytes(std::span(bytes)));
}

// Binds outputs NAME_new to the initializers NAME.
void BindUpdates(const onnx::GraphProto& algorithm, const Names& initializers, onnx::TrainingInfoProto* info) {
  for (const auto& output : algorithm.output()) {
    const std::string_view value = output.name();
    if (!value.ends_with(kNew) || !initializers.contains(value.substr(0, value.size() - kNew.size()))) continue;
    auto* binding = info->add_update_binding();
    binding->set_key(std::string(value.substr(0, value.size() - kNew.size())));
    binding->set_value(std::string(value));
  }
}

void AddMetadata(const std::pair<std::string, std::string>& metadata, onnx::ModelProto* model) {
  if (metadata.second.empty()) return;
  auto* entry = model->add_metadata_props();
  entry->set_key(metadata.first);
  entry->set_value(metadata.second);
}

}  // namespace

absl::StatusOr<std::string> AddTrainingInfo(const std::string& inference, const std::string& step,
                                            const std::pair<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(const auto model, Parse(inference));
  ASSIGN_OR_RETURN(const auto training, Parse(step));
  onnx::GraphProto &graph = *model->mutable_graph(), &algorithm = *training->mutable_graph();
  // Only what is no input can be updated.
  Erase(ListNames(graph.initializer()), graph.mutable_input());
  Renamer(graph, &algorithm).Rename();
  Names shared = ListNames(graph.input());
  shared.merge(ListNames(graph.initializer()));
  Erase(shared, algorithm.mutable_initializer());
  Names known = shared;  // no input of the algorithm
  known.merge(ListNames(algorithm.initializer()));
  Erase(known, algorithm.mutable_input());
  auto* info = model->add_training_info();
  BindUpdates(algorithm, known, info);
  AddMetadata(metadata, model.get());
  algorithm.set_name("training");
  *info->mutable_algorithm() = std::move(algorithm);
  return model->SerializeAsString();
}

namespace {

constexpr char kPreviewDomain[] = "ai.onnx.preview.training";
constexpr char kLossName[] = "loss", kRateName[] = "learning_rate", kStepName[] = "step", kStateName[] = "state_";

// Leaves in the graph what the loss is computed from, up to outputs of the model.
class LossKeeper {
 public:
  LossKeeper(const onnx::GraphProto& inference, onnx::GraphProto* graph)
      : outputs_(ListNames(inference.output())), weights_(ListNames(inference.initializer())), graph_(*graph) {
    for (int i = 0; i < graph_.node_size(); ++i) {
      const onnx::NodeProto& node = graph_.node(i);
      for (const auto& output : node.output()) makers_[output] = i;
      if (node.op_type() == "Identity" && outputs_.contains(node.output(0))) sources_[node.input(0)] = node.output(0);
    }
  }

  // False where the loss reads other values of the model.
  bool Keep() {
    if (!Collect(kLossName)) return false;
    onnx::GraphProto kept;
    for (const int i : nodes_) {
      onnx::NodeProto* node = kept.add_node();
      *node = graph_.node(i);
      for (auto& input : *node->mutable_input()) {
        if (const auto output = sources_.find(input); output != sources_.end()) input = output->second;
      }
    }
    graph_.mutable_node()->Swap(kept.mutable_node());
    EraseUnread(graph_.mutable_input());
    EraseUnread(graph_.mutable_initializer());
    EraseUnread(graph_.mutable_output());
    return true;
  }

 private:
  bool Collect(const std::string& loss) {
    std::vector<std::string> open = {loss};
    while (!open.empty()) {
      const std::string value = open.back();
      open.pop_back();
      if (value.empty() || outputs_.contains(value) || sources_.contains(value) || !read_.insert(value).second)
        continue;
      if (const auto maker = makers_.find(value); maker != makers_.end()) {
        nodes_.insert(maker->second);
        const auto& inputs = graph_.node(maker->second).input();
        open.insert(open.end(), inputs.begin(), inputs.end());
      } else if (weights_.contains(value) && IsInput(value)) {
        return false;
      }
    }
    return true;
  }

  // Frozen weights and constants, numbered in each graph, are initializers alone.
  bool IsInput(const std::string& name) const { return ListNames(graph_.input()).contains(name); }

  template <typename Values>
  void EraseUnread(Values* values) const {
    Names unread = ListNames(*values);
    for (const std::string& value : read_) unread.erase(value);
    Erase(unread, values);
  }

  const Names outputs_, weights_;
  onnx::GraphProto& graph_;
  std::map<std::string, int, std::less<>> makers_;
  std::map<std::string, std::string, std::less<>> sources_;  // of outputs that are copies
  std::set<int> nodes_;
  Names read_;
};

// Appends the gradients and the update to the nodes of the loss.
class PreviewAppender {
 public:
  PreviewAppender(const onnx::GraphProto& inference, const PreviewUpdate& update, onnx::GraphProto* algorithm)
      : inference_(inference), update_(update), algorithm_(*algorithm) {}

  void Append() {
    AppendGradient();
    AppendStep();
    onnx::NodeProto* node = AddNode(update_.op, kPreviewDomain);
    for (const auto& [name, value] : update_.attributes) SetAttribute(name, value, node->add_attribute());
    node->add_input(kRateName);
    node->add_input(kStepName);
    for (const std::string& weight : update_.weights) node->add_input(weight);
    for (const std::string& weight : update_.weights) node->add_input(weight + "_grad");
    for (const std::string& weight : update_.weights) node->add_input(kStateName + weight);
    for (const std::string& weight : update_.weights) AddResult(weight, FindWeight(weight), node);
    for (const std::string& weight : update_.weights) AddResult(AddState(weight), FindWeight(weight), node);
  }

 private:
  onnx::NodeProto* AddNode(const std::string& op, const char* domain = "") {
    onnx::NodeProto* node = algorithm_.add_node();
    node->set_op_type(op);
    node->set_domain(domain);
    return node;
  }

  const onnx::TensorProto& FindWeight(const std::string& name) const {
    for (const auto& tensor : inference_.initializer()) {
      if (tensor.name() == name) return tensor;
    }
    return onnx::TensorProto::default_instance();
  }

  void AppendGradient() {
    onnx::NodeProto* node = AddNode("Gradient", kPreviewDomain);
    onnx::AttributeProto *xs = node->add_attribute(), *zs = node->add_attribute(), *y = node->add_attribute();
    xs->set_name("xs"), xs->set_type(onnx::AttributeProto::STRINGS);
    zs->set_name("zs"), zs->set_type(onnx::AttributeProto::STRINGS);
    y->set_name("y"), y->set_type(onnx::AttributeProto::STRING), y->set_s(kLossName);
    for (const std::string& weight : update_.weights) {
      xs->add_strings(weight);
      node->add_input(weight);
      node->add_output(weight + "_grad");
    }
    for (const auto* graph : {&inference_, static_cast<const onnx::GraphProto*>(&algorithm_)}) {
      for (const auto& input : graph->input()) {
        zs->add_strings(input.name());
        node->add_input(input.name());
      }
    }
  }

  // T is the number of updates before this one.
  void AppendStep() {
    onnx::TensorProto* rate = AddInitializer(kRateName, onnx::TensorProto::FLOAT);
    rate->add_float_data(static_cast<float>(update_.rate));
    onnx::TensorProto* step = AddInitializer(kStepName, onnx::TensorProto::INT64);
    step->add_int64_data(0);
    AddInitializer("training/one", onnx::TensorProto::INT64)->add_int64_data(1);
    onnx::NodeProto* node = AddNode("Add");
    node->add_input(kStepName);
    node->add_input("training/one");
    AddResult(kStepName, *step, node);
  }

  onnx::TensorProto* AddInitializer(const std::string& name, int type) {
    onnx::TensorProto* tensor = algorithm_.add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(type);
    return tensor;
  }

  // Zeros of the weight's shape.
  std::string AddState(const std::string& weight) {
    const onnx::TensorProto& like = FindWeight(weight);
    onnx::TensorProto* state = AddInitializer(kStateName + weight, onnx::TensorProto::FLOAT);
    *state->mutable_dims() = like.dims();
    int64_t elements = 1;
    for (const int64_t extent : like.dims()) elements *= extent;
    state->mutable_raw_data()->assign(elements * sizeof(float), 0);
    return state->name();
  }

  void AddResult(const std::string& name, const onnx::TensorProto& like, onnx::NodeProto* node) {
    node->add_output(StrCat(name, kNew));
    onnx::ValueInfoProto* value = algorithm_.add_output();
    value->set_name(StrCat(name, kNew));
    auto* type = value->mutable_type()->mutable_tensor_type();
    type->set_elem_type(like.data_type());
    type->mutable_shape();
    for (const int64_t extent : like.dims()) type->mutable_shape()->add_dim()->set_dim_value(extent);
  }

  const onnx::GraphProto& inference_;
  const PreviewUpdate& update_;
  onnx::GraphProto& algorithm_;
};

// Names that the algorithm adds, of which the model must have none, and weights that can have a state of floats.
bool CanHold(const onnx::GraphProto& inference, const PreviewUpdate& update) {
  const Names taken = ListValues(inference);
  std::map<std::string, int, std::less<>> types;
  for (const auto& tensor : inference.initializer()) types[tensor.name()] = tensor.data_type();
  for (const std::string& weight : update.weights) {
    const auto type = types.find(weight);
    if (type == types.end() || type->second != onnx::TensorProto::FLOAT) return false;
    for (const std::string& name : {kStateName + weight, StrCat(weight, kNew), weight + "_grad"}) {
      if (taken.contains(name)) return false;
    }
  }
  return !taken.contains(kLossName) && !taken.contains(kRateName) && !taken.contains(kStepName);
}

}  // namespace

absl::StatusOr<std::optional<std::string>> AddPreviewTraining(const std::string& inference,
                                                              const std::string& gradients, const PreviewUpdate& update,
                                                              const std::pair<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(const auto model, Parse(inference));
  ASSIGN_OR_RETURN(const auto training, Parse(gradients));
  onnx::GraphProto &graph = *model->mutable_graph(), &algorithm = *training->mutable_graph();
  Erase(ListNames(graph.initializer()), graph.mutable_input());
  if (!CanHold(graph, update) || !LossKeeper(graph, &algorithm).Keep()) return std::optional<std::string>();
  Renamer(graph, &algorithm).Rename();
  Erase(ListNames(graph.input()), algorithm.mutable_input());
  PreviewAppender(graph, update, &algorithm).Append();
  Names initializers = ListNames(graph.initializer());
  initializers.merge(ListNames(algorithm.initializer()));
  auto* info = model->add_training_info();
  BindUpdates(algorithm, initializers, info);
  AddMetadata(metadata, model.get());
  algorithm.set_name("training");
  *info->mutable_algorithm() = std::move(algorithm);
  onnx::OperatorSetIdProto* opset = model->add_opset_import();
  opset->set_domain(kPreviewDomain);
  opset->set_version(1);
  return std::optional(model->SerializeAsString());
}

}  // namespace onnxtrain
