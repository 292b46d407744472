#include "frontend/onnx/recover/weight_tracer.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

namespace {

absl::Status ComputedWeightError(const ParsedNode& node) {
  return Invalid("its weight comes from ", NodeTag(node), "and is not a plain tensor");
}

}  // namespace

bool IsOp(const ParsedNode& node, std::initializer_list<std::string_view> ops) {
  return node.domain.empty() && std::ranges::find(ops, node.op_type) != ops.end() && !LacksOperands(node);
}

bool IsIdentity(const ParsedNode& node) { return IsOp(node, {"Identity"}); }
bool IsConstant(const ParsedNode& node) { return IsOp(node, {"Constant"}); }

bool IsViewOrCast(const ParsedNode& node) { return GetOnnxTraits(node).view || IsOp(node, {"Cast"}); }

std::string NodeTag(const ParsedNode& node) { return NodeTag(Printable(node.op_type), Printable(node.source)); }

std::vector<int64_t> Permutation(const ParsedNode& node, size_t rank) {
  std::vector<int64_t> perm = node.attrs.Ints("perm");
  for (size_t i = 0; perm.size() < rank && !node.attrs.Has("perm"); ++i)
    perm.push_back(static_cast<int64_t>(rank - 1 - i));
  for (int64_t& axis : perm) axis += axis < 0 ? static_cast<int64_t>(rank) : 0;
  return perm;
}

WeightTracer::WeightTracer(const OnnxModel::Parsed& model) : model_(model) {
  for (const ParsedNode& node : model_.graph.nodes) {
    for (const std::string& name : node.outputs) producers_[name] = &node;
    for (const auto* names : {&node.inputs, &node.captured}) {
      for (const std::string& name : *names) users_[name].push_back(&node);
    }
  }
}

const ParsedNode* WeightTracer::Producer(const std::string& name) const {
  const auto it = producers_.find(name);
  return it == producers_.end() ? nullptr : it->second;
}

bool WeightTracer::IsNameTaken(const std::string& name) const {
  return producers_.count(name) > 0 || users_.count(name) > 0 || model_.graph.initializers.count(name) > 0;
}

// Returns a weight that is an initializer or the output of a Constant or ConstantOfShape; an empty name otherwise.
absl::StatusOr<TracedWeight> WeightTracer::TraceStored(const std::string& name, const ParsedNode* producer) const {
  if (auto it = model_.graph.initializers.find(name); it != model_.graph.initializers.end())
    return TracedWeight{name, it->second.shape(), it->second.shape()};
  if (producer == nullptr) return Invalid("'", Printable(name), "' is not a weight");
  std::optional<Shape> shape;
  if (IsConstant(*producer)) {
    const HostTensor* value = producer->attrs.Tensor("value");
    if (value != nullptr) shape = value->shape();
  } else if (IsOp(*producer, {"ConstantOfShape"})) {
    shape = FindInts(*producer, 0);
  } else {
    return TracedWeight{};
  }
  if (!shape) return Invalid("'", Printable(name), "' is not a weight");
  return TracedWeight{name, *shape, *shape};
}

absl::StatusOr<TracedWeight> WeightTracer::Trace(const std::string& name) const {
  const ParsedNode* producer = Producer(name);
  ASSIGN_OR_RETURN(const TracedWeight stored, TraceStored(name, producer));
  if (!stored.tensor.empty()) return stored;
  const ParsedNode& node = *producer;
  if (!IsViewOrCast(node)) return ComputedWeightError(node);
  ASSIGN_OR_RETURN(TracedWeight weight, Trace(node.inputs[0]));
  // The exporter merged copies of equal bytes: each Identity is a separate weight.
  if (IsIdentity(node) && weight.through.empty() && CountReaders(node.inputs[0]) > 1)
    return TracedWeight{name, weight.stored, weight.shape};
  weight.through.insert(weight.through.begin(), &node);
  weight.before.insert(weight.before.begin(), weight.shape);
  ASSIGN_OR_RETURN(weight.shape, MovedShape(node, weight.shape));
  return weight;
}

absl::StatusOr<Shape> WeightTracer::MovedShape(const ParsedNode& node, const Shape& shape) const {
  if (IsOp(node, {"Reshape"})) return ReshapedShape(node, shape);
  if (IsIdentity(node) || IsOp(node, {"Cast"})) return shape;
  if (!IsOp(node, {"Transpose"})) return ComputedWeightError(node);
  Shape out(shape.size());
  const std::vector<int64_t> perm = Permutation(node, shape.size());
  for (size_t i = 0; i < perm.size() && i < shape.size(); ++i) {
    if (perm[i] < 0 || perm[i] >= static_cast<int64_t>(shape.size()))
      return Invalid(NodeTag(node), "has a broken perm");
    out[i] = shape[perm[i]];
  }
  return out;
}

absl::StatusOr<Shape> WeightTracer::ReshapedShape(const ParsedNode& reshape, const Shape& shape) const {
  const auto target = ReshapeTarget(reshape);
  if (!target.has_value()) return Invalid(NodeTag(reshape), "has a computed shape");
  Shape out = *target;
  int64_t known = 1, open = -1;
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] == 0 && i < shape.size()) out[i] = shape[i];
    if (out[i] == -1) {
      open = static_cast<int64_t>(i);
    } else {
      known *= std::max<int64_t>(out[i], 1);
    }
  }
  if (open >= 0) out[open] = NumElements(shape) / known;
  return out;
}

std::optional<std::vector<int64_t>> WeightTracer::FindInts(const ParsedNode& node, size_t input) const {
  if (node.inputs.size() <= input) return std::nullopt;
  if (const HostTensor* t = FindTensor(node.inputs[input])) return t->ToInts();
  const ParsedNode* producer = Producer(node.inputs[input]);
  const bool list = producer != nullptr && IsConstant(*producer) && producer->attrs.Has("value_ints");
  return list ? std::optional(producer->attrs.Ints("value_ints")) : std::nullopt;
}

std::optional<std::vector<int64_t>> WeightTracer::ReshapeTarget(const ParsedNode& reshape) const {
  if (reshape.attrs.Has("shape")) return reshape.attrs.Ints("shape");
  return FindInts(reshape, 1);
}

const HostTensor* WeightTracer::FindTensor(const std::string& name) const {
  if (auto it = model_.graph.initializers.find(name); it != model_.graph.initializers.end()) return &it->second;
  const ParsedNode* producer = Producer(name);
  return producer != nullptr && IsConstant(*producer) ? producer->attrs.Tensor("value") : nullptr;
}

size_t WeightTracer::CountReaders(const std::string& name) const {
  auto it = users_.find(name);
  const auto& outputs = model_.outputs;
  return (it == users_.end() ? 0 : it->second.size()) + std::count(outputs.begin(), outputs.end(), name);
}

absl::Status WeightTracer::CheckUntied(const TracedWeight& weight, const ParsedNode& reader) const {
  std::vector<std::string> names = {weight.tensor};
  for (const ParsedNode* node : weight.through) names.push_back(node->outputs[0]);
  for (const std::string& name : names) {
    auto it = users_.find(name);
    if (CountReaders(name) <= 1 || it == users_.end()) continue;
    for (const ParsedNode* other : it->second) {
      const bool own =
          other == &reader || std::find(weight.through.begin(), weight.through.end(), other) != weight.through.end();
      if (!own) return Invalid("its weight '", Printable(name), "' is tied: ", NodeTag(*other), "reads it as well");
    }
    return Invalid("its weight '", Printable(name), "' is read more than once");
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
