#include "frontend/ops/layout.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "absl/container/inlined_vector.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;

// Maps an axis of [N,C,…] to the same axis of [N,…,C].
int64_t PhysicalAxis(int64_t axis, int rank) { return axis == 0 ? 0 : axis == 1 ? rank - 1 : axis - 1; }

Ints PhysicalAxes(Ints axes, int rank) {
  for (int64_t& axis : axes) axis = PhysicalAxis(axis, rank);
  return axes;
}

Ints Sorted(Ints values) {
  std::sort(values.begin(), values.end());
  return values;
}

Ints PhysicalPads(const Ints& pads) {
  const auto half = pads.begin() + static_cast<std::ptrdiff_t>(pads.size() / 2);
  Ints moved = ToChannelsLast({pads.begin(), half});
  const Ints ends = ToChannelsLast({half, pads.end()});
  moved.insert(moved.end(), ends.begin(), ends.end());
  return moved;
}

AttrValue ToPhysical(const Attrs& attrs, const AttrSpec& spec, int rank) {
  if (spec.axes == AxisRole::kAxis) return PhysicalAxis(attrs.Int(spec.name), rank);
  const Ints values = attrs.Ints(spec.name);
  if (spec.axes == AxisRole::kPads) return PhysicalPads(values);
  if (spec.axes == AxisRole::kPerAxis) return ToChannelsLast(values);
  const Ints axes = PhysicalAxes(values, rank);
  return spec.axes == AxisRole::kAxisSet ? Sorted(axes) : axes;
}

using TypePointers = absl::InlinedVector<const Type*, 8>;

Ints CountAxes(int rank) {
  Ints axes(rank);
  std::iota(axes.begin(), axes.end(), int64_t{0});
  return axes;
}

}  // namespace

LayoutOperands FindLayoutOperands(const OpRow& row, std::span<const Type* const> inputs,
                                  std::span<const Type* const> outputs) {
  const LayoutOperands named = row.elementwise ? LayoutOperands{kAllOperands, kAllOperands, 0, true} : row.layout;
  int rank = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (HasBit(named.inputs, i) && inputs[i] != nullptr) rank = std::max(rank, inputs[i]->rank());
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (HasBit(named.outputs, i)) rank = std::max(rank, outputs[i]->rank());
  }
  LayoutOperands found{.packed = named.packed, .any_order = named.any_order};
  for (size_t i = 0; i < std::min<size_t>(inputs.size(), 32); ++i) {
    if (HasBit(named.inputs, i) && inputs[i] != nullptr && inputs[i]->rank() == rank) found.inputs |= 1u << i;
  }
  for (size_t i = 0; i < std::min<size_t>(outputs.size(), 32); ++i) {
    if (HasBit(named.outputs, i) && outputs[i]->rank() == rank) found.outputs |= 1u << i;
  }
  return found;
}

LayoutOperands FindLayoutOperands(const Graph& graph, const Node& node) {
  TypePointers inputs, outputs;
  for (ValueId v : node.inputs) inputs.push_back(v == kNoValue ? nullptr : &graph.type(v));
  for (ValueId v : node.outputs) outputs.push_back(&graph.type(v));
  return FindLayoutOperands(*FindOp(node.op), inputs, outputs);
}

int FindLayoutRank(const Graph& graph, const Node& node, const LayoutOperands& operands) {
  if (operands.inputs != 0) return graph.type(node.inputs[std::countr_zero(operands.inputs)]).rank();
  return operands.outputs == 0 ? 0 : graph.type(node.outputs[std::countr_zero(operands.outputs)]).rank();
}

Ints NchwToNhwcPerm(int rank) { return ToChannelsLast(CountAxes(rank)); }
Ints NhwcToNchwPerm(int rank) { return ToChannelsFirst(CountAxes(rank)); }

bool KeepsAxisOrder(const OpRow& row, const Attrs& attrs, int rank) {
  for (const AttrSpec& spec : row.attrs) {
    if (spec.axes != AxisRole::kAxisSet || attrs.Int("keepdims", 1) != 0) continue;
    const Ints axes = attrs.Ints(spec.name);
    Ints kept;
    for (int64_t a = 0; a < rank; ++a) {
      if (!axes.empty() && std::find(axes.begin(), axes.end(), a) == axes.end()) kept.push_back(PhysicalAxis(a, rank));
    }
    if (!std::is_sorted(kept.begin(), kept.end())) return false;
  }
  return true;
}

absl::Status InferLayouts(const OpRow& row, std::span<const Type* const> inputs, const Attrs& attrs,
                          std::vector<Type>* outputs) {
  TypePointers types;
  for (const Type& type : *outputs) types.push_back(&type);
  const LayoutOperands operands = FindLayoutOperands(row, inputs, types);
  const Type* first = nullptr;  // the first operand that shares the layout
  bool spreads = false;         // true if another operand has several elements
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr) continue;
    const Type& type = *inputs[i];
    const bool is_packed = type.layout == Layout::kPacked;
    if (is_packed && HasBit(operands.packed, i)) continue;
    if (is_packed || (type.layout != Layout::kRowMajor && !HasBit(operands.inputs, i)))
      return Invalid("expected a row-major tensor, got ", ToString(type));
    if (!HasBit(operands.inputs, i)) {
      spreads |= operands.any_order && type.elements() != 1;
      continue;
    }
    if (first == nullptr) first = &type;
    if (type.layout != first->layout)
      return Invalid("expected one layout, got ", ToString(*first), " and ", ToString(type));
  }
  if (first == nullptr || first->layout == Layout::kRowMajor) return absl::OkStatus();
  if (spreads || !KeepsAxisOrder(row, attrs, first->rank())) return Invalid("cannot compute over ", ToString(*first));
  for (size_t i = 0; i < outputs->size(); ++i) {
    if (HasBit(operands.outputs, i)) (*outputs)[i].layout = first->layout;
  }
  return absl::OkStatus();
}

Attrs ToPhysicalAttrs(const OpRow& row, const Attrs& attrs, int rank) {
  Attrs physical = attrs;
  for (const AttrSpec& spec : row.attrs) {
    if (spec.axes != AxisRole::kNone) physical.Set(std::string(spec.name), ToPhysical(attrs, spec, rank));
  }
  return physical;
}

PhysicalNode ToPhysical(const Graph& graph, const Node& node) {
  PhysicalNode physical{.attrs = node.attrs};
  int rank = 0;
  for (ValueId v : node.inputs) {
    const Type type = v == kNoValue ? Type{} : graph.type(v);
    if (type.layout == Layout::kChannelsLast) rank = type.rank();
    physical.inputs.push_back({type.dtype, PhysicalShape(type)});
  }
  for (ValueId v : node.outputs) physical.outputs.push_back({graph.type(v).dtype, PhysicalShape(graph.type(v))});
  if (rank > 0) physical.attrs = ToPhysicalAttrs(*FindOp(node.op), node.attrs, rank);
  return physical;
}

bool IsChannelsLast(const Graph& graph, const Node& node) {
  const auto last = [&](ValueId v) { return v != kNoValue && graph.type(v).layout == Layout::kChannelsLast; };
  return std::any_of(node.inputs.begin(), node.inputs.end(), last) ||
         std::any_of(node.outputs.begin(), node.outputs.end(), last);
}

}  // namespace onnxtrain
