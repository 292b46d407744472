#include "frontend/onnx/importer/float_types.h"

#include <algorithm>

#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {

namespace {

bool StoresDoubleWeights(const ParsedGraph& graph) {
  const auto is_weight = [](const HostTensor& t) { return t.dtype() == DType::kFloat64 && t.size() > 1; };
  const auto holds_weight = [&](const ParsedNode& node) {
    const HostTensor* value = node.attrs.Tensor("value");
    return value != nullptr && is_weight(*value);
  };
  return std::ranges::any_of(graph.initializers, [&](const auto& entry) { return is_weight(entry.second); }) ||
         std::ranges::any_of(graph.nodes, holds_weight);
}

// The data, and every weight that is more than a number.
bool IsDoubleOnly(const ParsedGraph& graph) {
  const auto is_other = [](DType dtype) { return IsFloat(dtype) && dtype != DType::kFloat64; };
  bool reads_double = false;
  for (const ParsedValue& input : graph.inputs) {
    if (!input.dtype || graph.initializers.contains(input.name)) continue;
    if (is_other(*input.dtype)) return false;
    reads_double |= *input.dtype == DType::kFloat64;
  }
  return reads_double && std::ranges::none_of(graph.initializers, [&](const auto& entry) {
           return is_other(entry.second.dtype()) && entry.second.size() > 1;
         });
}

}  // namespace

bool HasDoubleWeights(const ParsedGraph& graph) { return StoresDoubleWeights(graph) || IsDoubleOnly(graph); }

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
