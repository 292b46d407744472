#include "frontend/onnx/import/float_types.h"

#include <algorithm>

#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {
namespace {

// Whether an initializer or a Constant node holds more than one number of such a type.
template <typename IsType>
bool StoresTensor(const ParsedGraph& graph, IsType is_type) {
  const auto is_weight = [&](const HostTensor& t) { return is_type(t.dtype()) && t.size() > 1; };
  const auto holds_weight = [&](const ParsedNode& node) {
    const HostTensor* value = node.attrs.Tensor("value");
    return value != nullptr && is_weight(*value);
  };
  return std::ranges::any_of(graph.initializers, [&](const auto& entry) { return is_weight(entry.second); }) ||
         std::ranges::any_of(graph.nodes, holds_weight);
}

bool IsDouble(DType dtype) { return dtype == DType::kFloat64; }
bool IsOtherFloat(DType dtype) { return IsFloat(dtype) && !IsDouble(dtype); }

// The data, and every weight that is more than a number.
bool IsDoubleOnly(const ParsedGraph& graph) {
  bool reads_double = false;
  for (const ParsedValue& input : graph.inputs) {
    if (!input.dtype || graph.initializers.contains(input.name)) continue;
    if (IsOtherFloat(*input.dtype)) return false;
    reads_double |= IsDouble(*input.dtype);
  }
  return reads_double && !StoresTensor(graph, IsOtherFloat);
}

}  // namespace

bool HasDoubleWeights(const ParsedGraph& graph) { return StoresTensor(graph, IsDouble) || IsDoubleOnly(graph); }

DType FloatTypes::Map(DType dtype) const {
  const bool low = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  const bool mapped = dtype == DType::kFloat32 || (low && low_) || (dtype == DType::kFloat64 && double_);
  return mapped ? float_type_ : dtype;
}

void FloatTypes::MapTypeAttr(const OnnxTraits& traits, Attrs* attrs) const {
  const std::string_view name = traits.type_attr;
  const auto* number = name.empty() ? nullptr : attrs->Find<int64_t>(name);
  if (number == nullptr && (!traits.type_defaults_to_float || attrs->Has(name))) return;
  const auto dtype = DTypeFromOnnx(number == nullptr ? DTypeToOnnx(DType::kFloat32) : *number);
  if (dtype && Map(*dtype) != *dtype) attrs->Set(std::string(name), DTypeToOnnx(Map(*dtype)));
}

void FloatTypes::MapAttrs(const ParsedNode& node, Attrs* attrs) const {
  Attrs mapped;
  for (const auto& [name, value] : *attrs) {
    const HostTensor* tensor = std::get_if<HostTensor>(&value);
    if (tensor != nullptr && Map(tensor->dtype()) != tensor->dtype()) mapped.Set(name, Map(*tensor));
  }
  for (const auto& [name, value] : mapped) attrs->Set(name, value);
  MapTypeAttr(GetOnnxTraits(node), attrs);
  if (!node.domain.empty()) return;
  if (node.op_type == "ConstantOfShape" && !attrs->Has("value"))
    attrs->Set("value", HostTensor({Map(DType::kFloat32), {1}}));
}

}  // namespace onnxtrain
