#include "frontend/onnx/import/input_shapes.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {
namespace {

// Returns true if an initializer or a Constant node has more than one element, of a type that `is_type` accepts.
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

// Returns true if some feed is float64, and no feed and no tensor of several elements has another float type.
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

InputShapes::InputShapes(const ParsedGraph& graph, const LiveGraph& live, const ImportOptions& options)
    : options_(options) {
  ChooseBatch(graph, live);
  CollectDimNames(graph);
}

int InputShapes::BatchAxis(const ParsedValue& value) const {
  const auto axis = options_.batch_axes.find(value.name);
  return axis == options_.batch_axes.end() ? 0 : axis->second;
}

ParsedValue InputShapes::MoveBatchFirst(ParsedValue input) const {
  const int axis = BatchAxis(input);
  if (axis == kAddedBatchAxis) {
    input.dims.insert(input.dims.begin(), 1);
    input.dim_names.insert(input.dim_names.begin(), "");
  }
  if (axis <= 0 || axis >= std::ssize(input.dims)) return input;
  std::rotate(input.dims.begin(), input.dims.begin() + axis, input.dims.begin() + axis + 1);
  std::rotate(input.dim_names.begin(), input.dim_names.begin() + axis, input.dim_names.begin() + axis + 1);
  return input;
}

void InputShapes::ChooseBatch(const ParsedGraph& graph, const LiveGraph& live) {
  batch_ = std::max<int64_t>(options_.batch, 1);
  int64_t fixed = 0;
  bool free = false;
  for (const ParsedValue& declared : graph.inputs) {
    if (!declared.dtype || graph.initializers.count(declared.name) > 0 || !live.IsRead(declared.name)) continue;
    if (options_.fixed_inputs.count(declared.name) > 0 || BatchAxis(declared) < 0) continue;
    const ParsedValue input = MoveBatchFirst(declared);
    const auto given = options_.input_shapes.find(input.name);
    const bool has_given = given != options_.input_shapes.end() && !given->second.empty();
    if (has_given && options_.batch == 0) batch_ = given->second[0];
    if (!input.has_shape || input.dims.empty()) continue;
    free |= input.dims[0] < 0;
    if (fixed == 0) fixed = input.dims[0];
  }
  const bool asked = options_.batch > 0 || !options_.input_shapes.empty();
  if (asked && !options_.conformance && !free && fixed > 0 && fixed != batch_) fixed_batch_ = fixed;
}

// Collects the extents of dim names from the options, the given shapes and the batch; they apply to all inputs.
void InputShapes::CollectDimNames(const ParsedGraph& graph) {
  dims_ = options_.dim_values;
  for (const ParsedValue& declared : graph.inputs) {
    const ParsedValue input = MoveBatchFirst(declared);
    const auto given = options_.input_shapes.find(input.name);
    const bool batched = HasBatch(declared);
    for (size_t i = 0; i < input.dims.size(); ++i) {
      if (input.dims[i] >= 0 || input.dim_names[i].empty()) continue;
      if (given != options_.input_shapes.end() && i < given->second.size()) {
        dims_.emplace(input.dim_names[i], i == 0 && batched && options_.batch > 0 ? batch_ : given->second[i]);
      } else if (i == 0 && batched) {
        dims_.emplace(input.dim_names[i], batch_);
      }
    }
  }
}

absl::StatusOr<int64_t> InputShapes::ResolveFreeDim(const ParsedValue& input, size_t axis) const {
  const std::string& name = input.dim_names[axis];
  if (auto it = dims_.find(name); !name.empty() && it != dims_.end()) return it->second;
  if (axis == 0 && HasBatch(input)) return batch_;
  if (name.empty()) return Invalid("extent ", axis, " is free: its shape must be given");
  return Invalid("extent ", axis, " ('", name, "') is free: it needs a value (`dim` ", name, "=N)");
}

// Checks a given shape against the declared one, with its leading extent replaced by the batch of this import.
absl::StatusOr<Shape> InputShapes::CheckGiven(const ParsedValue& input, Shape shape) const {
  if (!input.has_shape || options_.conformance) return shape;
  const bool has_batch = HasBatch(input) && !shape.empty() && !input.dims.empty();
  const bool batched = has_batch && (input.dims[0] < 0 || input.dims[0] == fixed_batch_);
  if (options_.batch > 0 && batched) shape[0] = batch_;
  bool fits = shape.size() == input.dims.size();
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    fits = input.dims[i] < 0 || input.dims[i] == shape[i] || (i == 0 && batched);
  }
  if (fits) return shape;
  return Invalid("has the shape ", ToString(input.dims), " (-1: free), it cannot be ", ToString(shape));
}

absl::StatusOr<Shape> InputShapes::Resolve(const ParsedValue& declared) const {
  const ParsedValue input = MoveBatchFirst(declared);
  if (auto given = options_.input_shapes.find(input.name); given != options_.input_shapes.end())
    return CheckGiven(input, given->second);
  if (!input.has_shape) return Invalid("declares no shape: it must be given");
  Shape shape = input.dims;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0) {
      ASSIGN_OR_RETURN(shape[i], ResolveFreeDim(input, i));
    }
  }
  const bool batched = fixed_batch_ > 0 && HasBatch(input) && !shape.empty() && input.dims[0] == fixed_batch_;
  if (batched && input.dtype != DType::kBool) shape[0] = batch_;
  return shape;
}

}  // namespace onnxtrain
