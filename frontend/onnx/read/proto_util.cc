#include "frontend/onnx/read/proto_util.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <unordered_map>
#include <vector>

#include <onnx/onnx_pb.h>

#include "frontend/base/status.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/read/tensor_proto.h"
#include "frontend/ops/import/onnx_import.h"
#include "google/protobuf/unknown_field_set.h"

namespace onnxtrain {
namespace {

using TensorVisitor = std::function<absl::Status(onnx::TensorProto*)>;

absl::Status ForEachTensor(onnx::GraphProto* graph, const TensorVisitor& visit);

absl::Status ForEachTensor(onnx::SparseTensorProto* sparse, const TensorVisitor& visit) {
  RETURN_IF_ERROR(sparse->has_values() ? visit(sparse->mutable_values()) : absl::OkStatus());
  return sparse->has_indices() ? visit(sparse->mutable_indices()) : absl::OkStatus();
}

absl::Status ForEachTensor(onnx::NodeProto* node, const TensorVisitor& visit) {
  for (auto& attribute : *node->mutable_attribute()) {
    if (attribute.has_t()) RETURN_IF_ERROR(visit(attribute.mutable_t()));
    if (attribute.has_sparse_tensor()) RETURN_IF_ERROR(ForEachTensor(attribute.mutable_sparse_tensor(), visit));
    if (attribute.has_g()) RETURN_IF_ERROR(ForEachTensor(attribute.mutable_g(), visit));
    for (auto& tensor : *attribute.mutable_tensors()) RETURN_IF_ERROR(visit(&tensor));
    for (auto& sparse : *attribute.mutable_sparse_tensors()) RETURN_IF_ERROR(ForEachTensor(&sparse, visit));
    for (auto& graph : *attribute.mutable_graphs()) RETURN_IF_ERROR(ForEachTensor(&graph, visit));
  }
  return absl::OkStatus();
}

absl::Status ForEachTensor(onnx::GraphProto* graph, const TensorVisitor& visit) {
  for (auto& initializer : *graph->mutable_initializer()) RETURN_IF_ERROR(visit(&initializer));
  for (auto& sparse : *graph->mutable_sparse_initializer()) RETURN_IF_ERROR(ForEachTensor(&sparse, visit));
  for (auto& node : *graph->mutable_node()) RETURN_IF_ERROR(ForEachTensor(&node, visit));
  return absl::OkStatus();
}

}  // namespace

bool IsOnnxOp(const onnx::NodeProto& node, std::string_view op_type) {
  return node.op_type() == op_type && (node.domain().empty() || node.domain() == "ai.onnx");
}

onnx::AttributeProto* FindAttribute(onnx::NodeProto* node, std::string_view name) {
  for (auto& attribute : *node->mutable_attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

void SetAttribute(const std::string& name, const AttrValue& value, onnx::AttributeProto* proto) {
  proto->Clear();
  proto->set_name(name);
  if (const auto* i = std::get_if<int64_t>(&value)) {
    proto->set_type(onnx::AttributeProto::INT);
    proto->set_i(*i);
  } else if (const auto* f = std::get_if<double>(&value)) {
    proto->set_type(onnx::AttributeProto::FLOAT);
    proto->set_f(static_cast<float>(*f));
  } else if (const auto* s = std::get_if<std::string>(&value)) {
    proto->set_type(onnx::AttributeProto::STRING);
    proto->set_s(*s);
  } else if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) {
    proto->set_type(onnx::AttributeProto::INTS);
    for (const int64_t i : *ints) proto->add_ints(i);
  } else if (const auto* floats = std::get_if<std::vector<double>>(&value)) {
    proto->set_type(onnx::AttributeProto::FLOATS);
    for (const double f : *floats) proto->add_floats(static_cast<float>(f));
  }
}

void StoreTensor(const HostTensor& value, onnx::TensorProto* proto) {
  const HostTensor stored = PackForStorage(value);
  const auto bytes = stored.bytes();
  if (proto->float_data_size() > 0 && value.dtype() == DType::kFloat32) {
    std::memcpy(proto->mutable_float_data()->mutable_data(), bytes.data(), bytes.size());
  } else if (proto->double_data_size() > 0 && value.dtype() == DType::kFloat64) {
    std::memcpy(proto->mutable_double_data()->mutable_data(), bytes.data(), bytes.size());
  } else {
    proto->clear_float_data();
    proto->clear_double_data();
    proto->clear_int32_data();
    proto->set_raw_data(bytes.data(), bytes.size());
  }
}

void AddInitializer(const std::string& name, const HostTensor& value, onnx::ModelProto* model) {
  onnx::GraphProto* graph = model->mutable_graph();
  onnx::TensorProto* tensor = graph->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(static_cast<int32_t>(DTypeToOnnx(value.dtype())));
  for (int64_t d : value.shape()) tensor->add_dims(d);
  const HostTensor stored = PackForStorage(value);
  tensor->set_raw_data(stored.bytes().data(), stored.bytes().size());
  if (model->ir_version() >= 4) return;
  onnx::ValueInfoProto* input = graph->add_input();
  input->set_name(name);
  auto* type = input->mutable_type()->mutable_tensor_type();
  type->set_elem_type(tensor->data_type());
  for (int64_t d : value.shape()) type->mutable_shape()->add_dim()->set_dim_value(d);
}

HostTensor FitFloats(const HostTensor& weight, int64_t size) {
  const int64_t n = weight.size();
  if (weight.shape().empty() || weight.shape()[0] != 1 || 2 * n != size) return weight.Reshaped({n});
  HostTensor rows({weight.dtype(), {size}});
  for (int64_t i = 0; i < n; ++i) {
    rows.Set(i, -weight.At(i));
    rows.Set(n + i, weight.At(i));
  }
  return rows;
}

absl::Status ForEachTensor(onnx::ModelProto* model, const TensorVisitor& visit) {
  RETURN_IF_ERROR(ForEachTensor(model->mutable_graph(), visit));
  for (auto& function : *model->mutable_functions()) {
    for (auto& node : *function.mutable_node()) RETURN_IF_ERROR(ForEachTensor(&node, visit));
  }
  for (auto& training : *model->mutable_training_info()) {
    if (training.has_initialization()) RETURN_IF_ERROR(ForEachTensor(training.mutable_initialization(), visit));
    if (training.has_algorithm()) RETURN_IF_ERROR(ForEachTensor(training.mutable_algorithm(), visit));
  }
  return absl::OkStatus();
}

namespace {

// Bounds one entry. A signature has one line per weight, which takes less than this for 100,000 weights.
constexpr size_t kMaxEntryBytes = size_t{32} << 20;

void AddEntry(const onnx::StringStringEntryProto& entry, Metadata* metadata) {
  if (entry.ByteSizeLong() <= kMaxEntryBytes) metadata->emplace(entry.key(), entry.value());
}

// Reads metadata_props from the unknown fields. The field numbers are from onnx.proto of IR version 10 and later.
template <typename Proto>
Metadata ReadUnknownEntries(const Proto& proto, int field_number) {
  Metadata metadata;
  const google::protobuf::UnknownFieldSet& fields = proto.unknown_fields();
  for (int i = 0; i < fields.field_count(); ++i) {
    const auto& field = fields.field(i);
    if (field.number() != field_number || field.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED)
      continue;
    onnx::StringStringEntryProto entry;
    if (field.length_delimited().size() <= kMaxEntryBytes && entry.ParseFromString(field.length_delimited()))
      AddEntry(entry, &metadata);
  }
  return metadata;
}

}  // namespace

Metadata ReadMetadata(const onnx::ModelProto& proto) {
  Metadata metadata;
  for (const auto& entry : proto.metadata_props()) AddEntry(entry, &metadata);
  return metadata;
}

Metadata ReadMetadata(const onnx::GraphProto& proto) { return ReadUnknownEntries(proto, 16); }
Metadata ReadMetadata(const onnx::NodeProto& proto) { return ReadUnknownEntries(proto, 9); }
Metadata ReadMetadata(const onnx::ValueInfoProto& proto) { return ReadUnknownEntries(proto, 4); }

const std::string& FindMetadata(const Metadata& metadata, const std::string& key) {
  static const std::string none;
  const auto it = metadata.find(key);
  return it == metadata.end() ? none : it->second;
}

namespace {

using Definitions = std::unordered_map<std::string, int>;

void CountDefinitions(const onnx::GraphProto& graph, Definitions* count) {
  for (const auto& input : graph.input()) ++(*count)[input.name()];
  for (const auto& initializer : graph.initializer()) ++(*count)[initializer.name()];
  for (const auto& node : graph.node()) {
    for (const std::string& output : node.output()) ++(*count)[output];
  }
}

bool IsWeight(const onnx::TensorProto& tensor) {
  constexpr onnx::TensorProto::DataType kFloats[] = {onnx::TensorProto::FLOAT, onnx::TensorProto::DOUBLE,
                                                     onnx::TensorProto::FLOAT16, onnx::TensorProto::BFLOAT16};
  // The reader checks the extents later.
  return std::ranges::find(kFloats, tensor.data_type()) != std::end(kFloats) &&
         std::ranges::any_of(tensor.dims(), [](int64_t extent) { return extent != 1; });
}

// Returns the tensor of a Constant node, or null.
onnx::TensorProto* ConstantTensor(onnx::NodeProto* node) {
  if (!IsOnnxOp(*node, "Constant") || node->output_size() != 1) return nullptr;
  onnx::AttributeProto* value = FindAttribute(node, "value");
  return value != nullptr && value->has_t() ? value->mutable_t() : nullptr;
}

// Removes matching elements and keeps the order of the others.
template <typename List, typename Moves>
void RemoveIf(List* list, const Moves& moves) {
  list->erase(std::remove_if(list->begin(), list->end(), moves), list->end());
}

}  // namespace

void ForEachBody(onnx::GraphProto* graph, const std::function<void(onnx::GraphProto*)>& visit) {
  const auto enter = [&](onnx::GraphProto* body) {
    visit(body);
    ForEachBody(body, visit);
  };
  for (auto& node : *graph->mutable_node()) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) enter(attribute.mutable_g());
      for (auto& body : *attribute.mutable_graphs()) enter(&body);
    }
  }
}

void MoveBodyWeights(onnx::GraphProto* graph) {
  std::vector<onnx::GraphProto*> bodies;
  ForEachBody(graph, [&](onnx::GraphProto* body) { bodies.push_back(body); });
  if (bodies.empty()) return;
  Definitions count;
  CountDefinitions(*graph, &count);
  for (const onnx::GraphProto* body : bodies) CountDefinitions(*body, &count);
  const auto move = [&](const std::string& name, onnx::TensorProto* tensor) {
    if (tensor == nullptr || count[name] != 1 || !IsWeight(*tensor)) return false;
    onnx::TensorProto* moved = graph->add_initializer();
    moved->Swap(tensor);
    moved->set_name(name);
    return true;
  };
  for (onnx::GraphProto* body : bodies) {
    RemoveIf(body->mutable_initializer(), [&](auto& tensor) { return move(std::string(tensor.name()), &tensor); });
    RemoveIf(body->mutable_node(),
             [&](auto& node) { return node.output_size() == 1 && move(node.output(0), ConstantTensor(&node)); });
  }
}

}  // namespace onnxtrain
