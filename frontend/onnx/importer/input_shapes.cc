#include "frontend/onnx/importer/input_shapes.h"

#include <algorithm>

#include "frontend/base/status.h"

namespace onnxtrain {

InputShapes::InputShapes(const ParsedGraph& graph, const LiveGraph& live, const ImportOptions& options)
    : options_(options) {
  ChooseBatch(graph, live);
  CollectDimNames(graph);
}

void InputShapes::ChooseBatch(const ParsedGraph& graph, const LiveGraph& live) {
  batch_ = std::max<int64_t>(options_.batch, 1);
  int64_t fixed = 0;
  bool free = false;
  for (const ParsedValue& input : graph.inputs) {
    if (!input.dtype || graph.initializers.count(input.name) > 0 || !live.IsRead(input.name)) continue;
    if (options_.fixed_inputs.count(input.name) > 0) continue;
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

// Dim names that are given, or that follow from the given shapes and the batch, hold for all inputs.
void InputShapes::CollectDimNames(const ParsedGraph& graph) {
  dims_ = options_.dim_values;
  for (const ParsedValue& input : graph.inputs) {
    const auto given = options_.input_shapes.find(input.name);
    for (size_t i = 0; i < input.dims.size(); ++i) {
      if (input.dims[i] >= 0 || input.dim_names[i].empty()) continue;
      if (given != options_.input_shapes.end() && i < given->second.size()) {
        dims_.emplace(input.dim_names[i], i == 0 && options_.batch > 0 ? batch_ : given->second[i]);
      } else if (i == 0) {
        dims_.emplace(input.dim_names[i], batch_);
      }
    }
  }
}

absl::StatusOr<int64_t> InputShapes::ResolveFreeDim(const ParsedValue& input, size_t axis) const {
  const std::string& name = input.dim_names[axis];
  if (auto it = dims_.find(name); !name.empty() && it != dims_.end()) return it->second;
  if (axis == 0) return batch_;
  if (name.empty()) return Invalid("extent ", axis, " is free: its shape must be given");
  return Invalid("extent ", axis, " ('", name, "') is free: it needs a value (`dim` ", name, "=N)");
}

// The batch may change from import to import; a given shape need not.
absl::StatusOr<Shape> InputShapes::CheckGiven(const ParsedValue& input, Shape shape) const {
  if (!input.has_shape || options_.conformance) return shape;
  const bool batched = !shape.empty() && !input.dims.empty() && (input.dims[0] < 0 || input.dims[0] == fixed_batch_);
  if (options_.batch > 0 && batched) shape[0] = batch_;
  bool fits = shape.size() == input.dims.size();
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    fits = input.dims[i] < 0 || input.dims[i] == shape[i] || (i == 0 && input.dims[i] == fixed_batch_);
  }
  if (fits) return shape;
  return Invalid("has the shape ", ToString(input.dims), " (-1: free), it cannot be ", ToString(shape));
}

absl::StatusOr<Shape> InputShapes::Resolve(const ParsedValue& input) const {
  if (auto given = options_.input_shapes.find(input.name); given != options_.input_shapes.end())
    return CheckGiven(input, given->second);
  if (!input.has_shape) return Invalid("declares no shape: it must be given");
  Shape shape = input.dims;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 0) {
      ASSIGN_OR_RETURN(shape[i], ResolveFreeDim(input, i));
    }
  }
  const bool batched = fixed_batch_ > 0 && !shape.empty() && input.dims[0] == fixed_batch_;
  if (batched && input.dtype != DType::kBool) shape[0] = batch_;
  return shape;
}

}  // namespace onnxtrain
