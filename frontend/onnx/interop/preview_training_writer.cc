#include "frontend/onnx/interop/training_info.h"

#include <map>
#include <set>
#include <span>
#include <vector>

#include <onnx/onnx_pb.h>
#include "frontend/base/status.h"
#include "frontend/onnx/interop/training_algorithm.h"
#include "frontend/onnx/read/proto_util.h"

namespace onnxtrain {
namespace {

constexpr char kPreviewLoss[] = "loss";

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

  // Returns false if the loss reads values of the model that are not outputs.
  bool Keep() {
    if (!Collect(kPreviewLoss)) return false;
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

  // Returns false for frozen weights and constants, which are only initializers.
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
  std::map<std::string, std::string, std::less<>> sources_;  // sources of outputs that are copies
  std::set<int> nodes_;
  Names read_;
};

// Removes everything from the graph that does not compute the loss from outputs of the model. Returns false, without
// changes, if the loss reads other values of the model.
bool KeepLoss(const onnx::GraphProto& inference, onnx::GraphProto* graph) {
  return LossKeeper(inference, graph).Keep();
}

constexpr char kPreviewDomain[] = "ai.onnx.preview.training";
constexpr char kRateName[] = "learning_rate", kStepName[] = "step", kStateName[] = "state_";

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
    y->set_name("y"), y->set_type(onnx::AttributeProto::STRING), y->set_s(kPreviewLoss);
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

  // Appends the learning rate and the counter T, the number of previous updates.
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

  // Adds a state of zeros with the shape of the weight.
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
    node->add_output(StrCat(name, kNewSuffix));
    onnx::ValueInfoProto* value = algorithm_.add_output();
    value->set_name(StrCat(name, kNewSuffix));
    auto* type = value->mutable_type()->mutable_tensor_type();
    type->set_elem_type(like.data_type());
    type->mutable_shape();
    for (const int64_t extent : like.dims()) type->mutable_shape()->add_dim()->set_dim_value(extent);
  }

  const onnx::GraphProto& inference_;
  const PreviewUpdate& update_;
  onnx::GraphProto& algorithm_;
};

// Returns true if the model uses no name that the algorithm adds, and its weights can have float states.
bool CanHold(const onnx::GraphProto& inference, const PreviewUpdate& update) {
  const Names taken = ListValues(inference);
  std::map<std::string, int, std::less<>> types;
  for (const auto& tensor : inference.initializer()) types[tensor.name()] = tensor.data_type();
  for (const std::string& weight : update.weights) {
    const auto type = types.find(weight);
    if (type == types.end() || type->second != onnx::TensorProto::FLOAT) return false;
    for (const std::string& name : {kStateName + weight, StrCat(weight, kNewSuffix), weight + "_grad"}) {
      if (taken.contains(name)) return false;
    }
  }
  return !taken.contains(kPreviewLoss) && !taken.contains(kRateName) && !taken.contains(kStepName);
}

}  // namespace

absl::StatusOr<std::optional<std::string>> AddPreviewTraining(const std::string& inference,
                                                              const std::string& gradients, const PreviewUpdate& update,
                                                              const std::pair<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(const auto model, ParseModelProto(std::as_bytes(std::span(inference))));
  ASSIGN_OR_RETURN(const auto training, ParseModelProto(std::as_bytes(std::span(gradients))));
  onnx::GraphProto &graph = *model->mutable_graph(), &algorithm = *training->mutable_graph();
  Erase(ListNames(graph.initializer()), graph.mutable_input());
  if (!CanHold(graph, update) || !KeepLoss(graph, &algorithm)) return std::optional<std::string>();
  RenameClashes(graph, &algorithm);
  Erase(ListNames(graph.input()), algorithm.mutable_input());
  PreviewAppender(graph, update, &algorithm).Append();
  AppendTrainingInfo(&algorithm, metadata, model.get());
  onnx::OperatorSetIdProto* opset = model->add_opset_import();
  opset->set_domain(kPreviewDomain);
  opset->set_version(1);
  return std::optional(model->SerializeAsString());
}

}  // namespace onnxtrain
