#include "frontend/onnx/importer/float_types.h"

#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {

DType FloatTypes::Map(DType dtype) const {
  const bool low = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  if (dtype == DType::kFloat32 || (low && !keep_low_precision_)) return float_type_;
  return dtype;
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
