#include "frontend/onnx/importer/batch_unfixer.h"

#include <algorithm>

#include "frontend/base/status.h"

namespace onnxtrain {

absl::Status BatchUnfixer::UnfixNode(const ParsedNode& node, std::vector<Val>* inputs, Attrs* attrs) {
  if (fixed_ == 0 || !node.domain.empty()) return absl::OkStatus();
  if (node.op_type == "Concat") return UnfixConcat(inputs, *attrs), absl::OkStatus();
  const size_t at = GetOnnxTraits(node).extents_input;
  if (at == 0 || inputs->empty() || attrs->Has("axes")) return absl::OkStatus();
  const HostTensor* known = inputs->size() > at ? known_.Find((*inputs)[at]) : nullptr;
  std::vector<int64_t> target = known != nullptr ? known->ToInts() : attrs->Ints("shape");
  if (target.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool changed, UnfixShape(node, inputs->front(), &target));
  if (!changed) return absl::OkStatus();
  if (known != nullptr) {
    (*inputs)[at] = builder_.Ints(target);
  } else {
    attrs->Set("shape", target);
  }
  notes_.push_back(
      StrCat(node.op_type, " '", node.source, "': the leading ", fixed_, " of its target became ", batch_));
  return absl::OkStatus();
}

// Whether a constant is repeated for each sample of the fixed batch.
bool BatchUnfixer::RepeatsForBatch(const ParsedNode& node, Val data, int64_t lead) {
  if (node.op_type == "Reshape" || known_.DependsOnFeed(data) || fixed_ == 1 || lead != fixed_) return false;
  return data.rank() == 0 || data.dim(0) == 1;
}

absl::StatusOr<bool> BatchUnfixer::UnfixShape(const ParsedNode& node, Val data, std::vector<int64_t>* target) {
  int64_t& lead = target->front();
  if (RepeatsForBatch(node, data, lead)) return lead = batch_, true;
  if (node.op_type == "Tile") return false;
  if (!known_.DependsOnFeed(data) || data.rank() == 0 || data.dim(0) != batch_ || lead == batch_) return false;
  if (lead == fixed_) return lead = batch_, true;
  const bool infers = std::find(target->begin() + 1, target->end(), -1) != target->end();
  if (node.op_type == "Reshape" && lead > 0 && infers) {
    return Invalid("reshapes to ", ToString(*target), ", which holds only for the batch of ", fixed_,
                   " that the model was exported for");
  }
  return false;
}

// A class token or initial state that was expanded to the fixed batch of 1 is concatenated with a value of the new
// batch.
void BatchUnfixer::UnfixConcat(std::vector<Val>* inputs, const Attrs& attrs) {
  const int64_t axis = attrs.Int("axis", 1);
  auto is_batched = [&](Val v) { return known_.DependsOnFeed(v) && v.rank() > 0 && v.dim(0) == batch_; };
  if (axis == 0 || fixed_ != 1 || std::ranges::none_of(*inputs, is_batched)) return;
  for (Val& v : *inputs) {
    if (!v.valid() || known_.DependsOnFeed(v) || v.rank() == 0 || axis == -v.rank() || v.dim(0) != 1) continue;
    Shape shape = v.shape();
    shape[0] = batch_;
    v = Expand(v, shape);
  }
}

absl::Status BatchUnfixer::CheckOutputs(const ParsedGraph& model, const InputShapes& shapes) const {
  if (fixed_ == 0) return absl::OkStatus();
  const Graph& graph = builder_.graph();
  for (const ParsedValue& output : model.outputs) {
    const GraphOutput* bound = graph.FindOutput(output.name);
    const int axis = shapes.BatchAxis(output);
    if (bound == nullptr || axis < 0 || axis >= std::ssize(output.dims) || output.dims[axis] != fixed_) continue;
    const Type& type = graph.type(bound->value);
    if (type.rank() > 0 && type.shape[0] == batch_) continue;
    const Node* node = graph.producer(bound->value);
    return Invalid(node == nullptr ? "" : NodeTag(*node), "output '", Printable(output.name), "' is ", ToString(type),
                   ": the model was exported for a batch of ", fixed_, " and does not follow a batch of ", batch_);
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
