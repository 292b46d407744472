#include "frontend/plugin/plugin_node.h"

#include <cstring>

#include "frontend/base/status.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {
namespace {

absl::Status Missing(const OnnxtrainAttribute& attribute) {
  return Invalid("attribute '", attribute.name, "': its value is missing");
}

template <typename T>
absl::StatusOr<AttrValue> ReadList(const OnnxtrainAttribute& attribute, const T* values) {
  if (values == nullptr && attribute.count > 0) return Missing(attribute);
  return AttrValue(std::vector<T>(values, values + attribute.count));
}

absl::StatusOr<AttrValue> ReadTensor(const OnnxtrainAttribute& attribute) {
  if (attribute.type == nullptr) return Missing(attribute);
  ASSIGN_OR_RETURN(Type type, FromPluginType(attribute.type->element, attribute.type->rank, attribute.type->shape));
  HostTensor tensor(std::move(type));
  const size_t bytes = tensor.bytes().size();
  if (bytes == 0) return AttrValue(std::move(tensor));
  if (attribute.data == nullptr) return Missing(attribute);
  std::memcpy(tensor.mutable_bytes().data(), attribute.data, bytes);
  return AttrValue(std::move(tensor));
}

}  // namespace

OnnxtrainTensorType ToPluginType(const Type& type) {
  return {.element = static_cast<int32_t>(DTypeToOnnx(type.dtype)),
          .rank = type.rank(),
          .shape = type.shape.data(),
          .bytes = type.bytes()};
}

PluginNode::PluginNode(std::string_view op, std::string_view source, const Attrs& attrs)
    : op_(op), source_(source), attrs_(attrs) {
  for (const auto& [name, value] : attrs_) AddAttribute(name, value);
}

PluginNode::PluginNode(const Graph& graph, const Node& node) : PluginNode(node.op, *node.source, node.attrs) {
  for (const ValueId v : node.inputs) {
    if (v == kNoValue) {
      AddInput(nullptr);
    } else {
      AddInput(&graph.type(v), graph.FindConstant(v), v);
    }
  }
  for (const ValueId v : node.outputs) AddOutput(graph.type(v), v);
}

void PluginNode::AddAttribute(const std::string& name, const AttrValue& value) {
  OnnxtrainAttribute a = {.name = name.c_str(), .kind = static_cast<int32_t>(value.index())};
  if (const auto* i = std::get_if<int64_t>(&value)) a.i = *i;
  if (const auto* f = std::get_if<double>(&value)) a.f = *f;
  if (const auto* s = std::get_if<std::string>(&value)) a.s = s->c_str();
  if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) {
    a.count = ints->size();
    a.ints = ints->data();
  }
  if (const auto* floats = std::get_if<std::vector<double>>(&value)) {
    a.count = floats->size();
    a.floats = floats->data();
  }
  if (const auto* tensor = std::get_if<HostTensor>(&value)) {
    a.type = &types_.emplace_back(ToPluginType(tensor->type()));
    a.data = tensor->bytes().data();
  }
  attributes_.push_back(a);
}

OnnxtrainOperand PluginNode::MakeOperand(const Type* type, const HostTensor* constant, int32_t value) {
  if (type == nullptr) return {.type = nullptr, .constant = nullptr, .value = -1};
  return {.type = &types_.emplace_back(ToPluginType(*type)),
          .constant = constant == nullptr ? nullptr : constant->bytes().data(),
          .value = value};
}

void PluginNode::AddInput(const Type* type, const HostTensor* constant, int32_t value) {
  inputs_.push_back(MakeOperand(type, constant, value));
}

void PluginNode::AddOutput(const Type& type, int32_t value) { outputs_.push_back(MakeOperand(&type, nullptr, value)); }

const OnnxtrainNode& PluginNode::Get() {
  node_ = {.op = op_.c_str(),
           .source = source_.c_str(),
           .num_inputs = inputs_.size(),
           .num_outputs = outputs_.size(),
           .num_attributes = attributes_.size(),
           .inputs = inputs_.data(),
           .outputs = outputs_.data(),
           .attributes = attributes_.data()};
  return node_;
}

PluginGraph::PluginGraph(const Graph& graph) {
  for (const Node& node : graph.nodes()) views_.push_back(nodes_.emplace_back(graph, node).Get());
  graph_ = {.num_nodes = views_.size(), .nodes = views_.data()};
}

absl::StatusOr<Type> FromPluginType(int32_t element, int32_t rank, const int64_t* shape) {
  const std::optional<DType> dtype = DTypeFromOnnx(element);
  if (!dtype) return Invalid("element type ", element, " is unknown");
  if (rank < 0 || rank > ONNXTRAIN_MAX_RANK) return Invalid("rank ", rank, " is not in [0, ", ONNXTRAIN_MAX_RANK, "]");
  if (shape == nullptr && rank > 0) return Invalid("a shape is missing");
  Type type{*dtype, Shape(shape, shape + rank)};
  RETURN_IF_ERROR(CheckShape(type.shape));
  return type;
}

absl::StatusOr<AttrValue> FromPluginAttribute(const OnnxtrainAttribute& attribute) {
  if (attribute.name == nullptr) return Invalid("an attribute has no name");
  switch (attribute.kind) {
    case ONNXTRAIN_ATTRIBUTE_INT:
      return AttrValue(attribute.i);
    case ONNXTRAIN_ATTRIBUTE_FLOAT:
      return AttrValue(attribute.f);
    case ONNXTRAIN_ATTRIBUTE_STRING:
      return attribute.s == nullptr ? absl::StatusOr<AttrValue>(Missing(attribute))
                                    : AttrValue(std::string(attribute.s));
    case ONNXTRAIN_ATTRIBUTE_INTS:
      return ReadList(attribute, attribute.ints);
    case ONNXTRAIN_ATTRIBUTE_FLOATS:
      return ReadList(attribute, attribute.floats);
    case ONNXTRAIN_ATTRIBUTE_TENSOR:
      return ReadTensor(attribute);
    default:
      return Invalid("attribute '", attribute.name, "' has the unknown kind ", attribute.kind);
  }
}

}  // namespace onnxtrain
