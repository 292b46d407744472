#include "frontend/onnx/interop/training_info.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <vector>

#include <onnx/onnx_pb.h>
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/onnx/interop/training_algorithm.h"
#include "frontend/onnx/read/file.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/read/proto_util.h"
#include "frontend/onnx/read/tensor_proto.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace onnxtrain {
namespace {

constexpr std::string_view kDomain = "ai.onnx.preview.training";

// Names of the states of an optimizer, in the order of its inputs.
const std::map<std::string, std::vector<std::string>, std::less<>>& StatesByOptimizer() {
  static const std::map<std::string, std::vector<std::string>, std::less<>> kStates = {
      {"Adam", {"mean", "square"}}, {"Adagrad", {"square"}}, {"Momentum", {"velocity"}}};
  return kStates;
}

bool IsOptimizer(const onnx::NodeProto& node) {
  return node.domain() == kDomain && StatesByOptimizer().contains(node.op_type());
}

// Prefix of the nodes that are appended to the loss model.
constexpr char kPrefix[] = "training_info/";

class AlgorithmReader {
 public:
  explicit AlgorithmReader(const onnx::ModelProto& model)
      : model_(model), inference_(model.graph()), algorithm_(model.training_info(0).algorithm()) {
    for (const auto& node : algorithm_.node()) {
      for (const auto& output : node.output()) makers_[output] = &node;
    }
    for (const auto& value : inference_.input()) known_[value.name()] = &value;
    for (const auto& value : inference_.output()) known_[value.name()] = &value;
    for (const auto& value : algorithm_.input()) known_[value.name()] = &value;
    // Before IR version 4, initializers are listed as inputs, too.
    for (const auto& tensor : inference_.initializer()) known_.erase(tensor.name());
    for (const auto& tensor : algorithm_.initializer()) known_.erase(tensor.name());
  }

  absl::StatusOr<TrainingInfo> Read() {
    TrainingInfo info;
    ASSIGN_OR_RETURN(const onnx::NodeProto* optimizer, FindOptimizer());
    info.optimizer = optimizer->op_type();
    info.rule = MakeRule(*optimizer);
    info.lr = optimizer->input_size() > 0 ? FindNumber(optimizer->input(0)) : std::nullopt;
    ASSIGN_OR_RETURN(const std::string loss, FindLoss());
    const auto is_loss = [&](const auto& output) { return output.name() == loss; };
    if (!makers_.contains(loss) && std::ranges::any_of(inference_.output(), is_loss)) {
      info.output = loss;
    } else {
      ASSIGN_OR_RETURN(info.loss, MakeLoss(loss));
    }
    return info;
  }

 private:
  absl::StatusOr<const onnx::NodeProto*> FindOptimizer() const {
    const onnx::NodeProto* found = nullptr;
    for (const auto& node : algorithm_.node()) {
      if (!IsOptimizer(node)) continue;
      if (found != nullptr && !HaveSameRule(*found, node))
        return Invalid("its nodes ", node.op_type(), " and ", found->op_type(), " differ in their attributes");
      found = &node;
    }
    if (found == nullptr) return Invalid("its algorithm has no node Adam, Adagrad or Momentum");
    return found;
  }

  static bool HaveSameRule(const onnx::NodeProto& a, const onnx::NodeProto& b) {
    std::map<std::string, std::string> attributes[2];
    for (const auto& attribute : a.attribute()) attributes[0][attribute.name()] = attribute.SerializeAsString();
    for (const auto& attribute : b.attribute()) attributes[1][attribute.name()] = attribute.SerializeAsString();
    return a.op_type() == b.op_type() && attributes[0] == attributes[1];
  }

  absl::StatusOr<std::string> FindLoss() const {
    for (const auto& node : algorithm_.node()) {
      if (node.domain() != kDomain || node.op_type() != "Gradient") continue;
      for (const auto& attribute : node.attribute()) {
        if (attribute.name() == "y" && !attribute.s().empty()) return attribute.s();
      }
    }
    return Invalid("its algorithm has no node Gradient that names a loss");
  }

  const onnx::TensorProto* FindInitializer(const std::string& name) const {
    for (const auto* graph : {&algorithm_, &inference_}) {
      for (const auto& tensor : graph->initializer()) {
        if (tensor.name() == name) return &tensor;
      }
    }
    return nullptr;
  }

  std::optional<double> FindNumber(const std::string& name) const {
    const onnx::TensorProto* tensor = FindInitializer(name);
    if (tensor == nullptr) return std::nullopt;
    const auto value = ReadTensor(*tensor, std::make_shared<onnx::TensorProto>(*tensor), nullptr);
    if (!value.ok() || !value->opaque.empty() || value->tensor.size() != 1) return std::nullopt;
    return value->tensor.At(0);
  }

  onnx::ModelProto NewModel() const {
    onnx::ModelProto model;
    model.set_ir_version(model_.ir_version());
    *model.mutable_opset_import() = model_.opset_import();
    *model.mutable_functions() = model_.functions();
    model.mutable_graph()->set_name("training_info");
    return model;
  }

  static void AddValue(const std::string& name, int type, bool scalar,
                       google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>* values) {
    onnx::ValueInfoProto* value = values->Add();
    value->set_name(name);
    value->mutable_type()->mutable_tensor_type()->set_elem_type(type);
    if (scalar) value->mutable_type()->mutable_tensor_type()->mutable_shape();
  }

  // Returns a model of the optimizer node, for one weight.
  std::string MakeRule(const onnx::NodeProto& optimizer) const {
    onnx::ModelProto model = NewModel();
    onnx::GraphProto* graph = model.mutable_graph();
    onnx::NodeProto* node = graph->add_node();
    *node = optimizer;
    node->clear_input();
    node->clear_output();
    AddValue("lr", onnx::TensorProto::FLOAT, true, graph->mutable_input());
    AddValue("step", onnx::TensorProto::INT64, true, graph->mutable_input());
    std::vector<std::string> tensors = {"weight", "gradient"};
    const auto& states = StatesByOptimizer().find(optimizer.op_type())->second;
    tensors.insert(tensors.end(), states.begin(), states.end());
    node->add_input("lr");
    node->add_input("step");
    for (const std::string& name : tensors) {
      AddValue(name, onnx::TensorProto::FLOAT, false, graph->mutable_input());
      node->add_input(name);
      if (name == "gradient") continue;
      node->add_output(name + "_new");
      AddValue(name + "_new", onnx::TensorProto::FLOAT, false, graph->mutable_output());
    }
    return model.SerializeAsString();
  }

  // Adds the nodes of the algorithm that compute the value, in topological order, and the constants and inputs that
  // they read.
  absl::Status Collect(const std::string& value, onnx::GraphProto* graph) {
    if (value.empty() || !collected_.insert(value).second) return absl::OkStatus();
    if (const auto maker = makers_.find(value); maker != makers_.end()) {
      const onnx::NodeProto& node = *maker->second;
      collected_.insert(node.output().begin(), node.output().end());
      for (const auto& input : node.input()) RETURN_IF_ERROR(Collect(input, graph));
      *graph->add_node() = node;
      return absl::OkStatus();
    }
    for (const auto& tensor : algorithm_.initializer()) {
      if (tensor.name() != value) continue;
      *graph->add_initializer() = tensor;
      return absl::OkStatus();
    }
    const auto known = known_.find(value);
    if (known == known_.end())
      return Invalid("its loss reads '", Printable(value), "', which is neither an output of the model nor an input");
    *graph->add_input() = *known->second;
    return absl::OkStatus();
  }

  // Returns the name of an input with a batch, preferably of labels; "" if there is none.
  std::string FindBatchInput(const onnx::GraphProto& graph) const {
    for (const auto& input : graph.input()) {
      const auto is_input = [&](const auto& value) { return value.name() == input.name(); };
      if (std::ranges::any_of(algorithm_.input(), is_input)) return input.name();
    }
    return graph.input_size() > 0 ? graph.input(0).name() : "";
  }

  static std::string Append(onnx::GraphProto* graph, std::string_view op, const std::vector<std::string>& inputs,
                            const std::string& output, const Attrs& attrs = {}) {
    onnx::NodeProto* node = graph->add_node();
    node->set_op_type(std::string(op));
    for (const std::string& input : inputs) node->add_input(input);
    node->add_output(output);
    for (const auto& [name, value] : attrs) SetAttribute(name, value, node->add_attribute());
    return output;
  }

  static std::string AppendInts(onnx::GraphProto* graph, const std::string& name, const std::vector<int64_t>& values) {
    onnx::TensorProto* tensor = graph->add_initializer();
    tensor->set_name(kPrefix + name);
    tensor->set_data_type(onnx::TensorProto::INT64);
    tensor->add_dims(static_cast<int64_t>(values.size()));
    for (const int64_t value : values) tensor->add_int64_data(value);
    return tensor->name();
  }

  // Returns a model with weight = n, the number of samples, and loss_sum = n times the loss of the algorithm, usually a
  // mean.
  absl::StatusOr<std::string> MakeLoss(const std::string& loss) {
    onnx::ModelProto model = NewModel();
    onnx::GraphProto* graph = model.mutable_graph();
    RETURN_IF_ERROR(Collect(loss, graph));
    const std::string with_batch = FindBatchInput(*graph);
    if (with_batch.empty()) return Invalid("its loss '", Printable(loss), "' reads no input");
    const auto name = [](const char* text) { return StrCat(kPrefix, text); };
    Append(graph, "Reshape", {loss, AppendInts(graph, "no_axes", {})}, name("scalar"));
    Append(graph, "Shape", {with_batch}, name("extents"));
    Append(graph, "Slice", {name("extents"), AppendInts(graph, "zero", {0}), AppendInts(graph, "one", {1})},
           name("samples"));
    Append(graph, "Reshape", {name("samples"), kPrefix + std::string("no_axes")}, name("sample_count"));
    Append(graph, "Cast", {name("sample_count")}, "weight", {{"to", int64_t{onnx::TensorProto::FLOAT}}});
    Append(graph, "Mul", {name("scalar"), "weight"}, "loss_sum");
    for (const char* output : {"loss_sum", "weight"})
      AddValue(output, onnx::TensorProto::FLOAT, true, graph->mutable_output());
    return model.SerializeAsString();
  }

  const onnx::ModelProto& model_;
  const onnx::GraphProto &inference_, &algorithm_;
  std::map<std::string, const onnx::NodeProto*> makers_;      // producers of values of the algorithm
  std::map<std::string, const onnx::ValueInfoProto*> known_;  // inputs of both, outputs of the model
  std::set<std::string> collected_;
};

// Returns true if a message has a training_info, without parsing it.
bool HasTrainingInfo(std::span<const std::byte> bytes) {
  using google::protobuf::internal::WireFormatLite;
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  while (const uint32_t tag = stream.ReadTag()) {
    if (WireFormatLite::GetTagFieldNumber(tag) == onnx::ModelProto::kTrainingInfoFieldNumber) return true;
    if (!WireFormatLite::SkipField(&stream, tag)) return false;
  }
  return false;
}

TrainingInfo ReadAlgorithm(const onnx::ModelProto& model) {
  if (model.training_info_size() > 1) return {.problem = "it has several algorithms"};
  auto info = AlgorithmReader(model).Read();
  return info.ok() ? *std::move(info) : TrainingInfo{.problem = std::string(ToStd(info.status().message()))};
}

}  // namespace

absl::StatusOr<std::optional<TrainingInfo>> ReadTrainingInfo(const OnnxModel& model) {
  std::shared_ptr<const MappedFile> file = model.parsed().memory;
  if (file == nullptr) {
    ASSIGN_OR_RETURN(file, MapProtoFile(model.path()));
  }
  if (!HasTrainingInfo(file->bytes())) return std::optional<TrainingInfo>();
  RETURN_IF_ERROR(GuardModelBytes(file->bytes()));
  const ExtractedModel without_weights = ExtractInitializers(file->bytes(), kMinMappedBytes);
  ASSIGN_OR_RETURN(const auto proto, ParseModelProto(std::as_bytes(std::span(without_weights.rest))));
  return ReadAlgorithm(*proto);
}

absl::StatusOr<std::string> AddTrainingInfo(const std::string& inference, const std::string& step,
                                            const std::pair<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(const auto model, ParseModelProto(std::as_bytes(std::span(inference))));
  ASSIGN_OR_RETURN(const auto training, ParseModelProto(std::as_bytes(std::span(step))));
  onnx::GraphProto &graph = *model->mutable_graph(), &algorithm = *training->mutable_graph();
  // An initializer that is also an input cannot be updated.
  Erase(ListNames(graph.initializer()), graph.mutable_input());
  RenameClashes(graph, &algorithm);
  Names shared = ListNames(graph.input());
  shared.merge(ListNames(graph.initializer()));
  Erase(shared, algorithm.mutable_initializer());
  Names known = shared;  // names that are not inputs of the algorithm
  known.merge(ListNames(algorithm.initializer()));
  Erase(known, algorithm.mutable_input());
  AppendTrainingInfo(&algorithm, metadata, model.get());
  return model->SerializeAsString();
}

}  // namespace onnxtrain
