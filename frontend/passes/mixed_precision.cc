#include "frontend/passes/mixed_precision.h"

#include <algorithm>
#include <map>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain {
namespace {

constexpr DType kWide = DType::kFloat32;

bool IsProduct(const Graph& graph, const Node& node) {
  const OpRow& row = *FindOp(node.op);
  return row.precision == Precision::kLow && graph.type(node.outputs[0]).dtype == kWide;
}

// Returns true if each output element is a single product, without a sum.
bool HasNoReduction(const Graph& graph, const Node& node) {
  const OpRow& row = *FindOp(node.op);
  if (row.flops == nullptr) return false;
  std::vector<const Type*> inputs;
  for (ValueId v : node.inputs) inputs.push_back(v == kNoValue ? nullptr : &graph.type(v));
  const Type& y = graph.type(node.outputs[0]);
  return row.flops(inputs, {&y, 1}, node.attrs) <= 2.0 * static_cast<double>(y.elements());
}

// Returns true if `low` represents every element exactly.
bool IsExact(const HostTensor& tensor, DType low) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (HostTensor::Scalar(low, tensor.At(i)).At(0) != tensor.At(i)) return false;
  }
  return true;
}

// Returns true if this input, such as an attention mask, may be float32 while the others are in `low`.
bool AcceptsFloat32Input(const Graph& graph, const Node& node, size_t input, DType low) {
  std::vector<Type> types;
  for (ValueId v : node.inputs) types.push_back(v == kNoValue ? Type() : graph.type(v));
  std::vector<const Type*> inputs;
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i].dtype == kWide && i != input) types[i].dtype = low;
    inputs.push_back(node.inputs[i] == kNoValue ? nullptr : &types[i]);
  }
  Attrs attrs = node.attrs;
  return input > 0 && types[input].dtype == kWide && InferTypes(node.op, inputs, attrs).ok();
}

class MixedPrecisionRewriter {
 public:
  MixedPrecisionRewriter(const Graph& graph, DType low, Graph* result)
      : graph_(graph),
        low_(low),
        r_(graph, result),
        users_(ComputeUsers(graph)),
        is_output_(graph.values().size(), false) {
    for (const GraphOutput& output : graph.outputs()) is_output_[output.value] = true;
    for (const Node& node : graph.nodes()) precision_.push_back(EffectivePrecision(node));
    MarkWanted();
    MarkFreelyCastable();
  }

  absl::Status Run() {
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      Emit(graph_.nodes()[n], precision_[n]);
      RETURN_IF_ERROR(r_.b().status());
    }
    for (const GraphOutput& output : graph_.outputs()) {
      const Val value = As(output.value, graph_.type(output.value).dtype);
      r_.b().graph().AddOutput(output.name, value.id(), output.into == kNoValue ? kNoValue : r_.Map(output.into).id());
    }
    return r_.b().status();
  }

 private:
  bool IsFloat32(ValueId v) const { return v != kNoValue && graph_.type(v).dtype == kWide; }
  bool IsAnyFloat32(const ValueIds& values) const {
    return std::any_of(values.begin(), values.end(), [&](ValueId v) { return IsFloat32(v); });
  }

  Precision EffectivePrecision(const Node& node) const {
    const Precision precision = FindOp(node.op)->precision;
    return precision == Precision::kLow && HasNoReduction(graph_, node) ? Precision::kFloat32 : precision;
  }

  // Marks values that a product reads, directly or through operators that propagate the precision.
  void MarkWanted() {
    wanted_.assign(graph_.values().size(), false);
    for (size_t n = graph_.nodes().size(); n-- > 0;) {
      const Node& node = graph_.nodes()[n];
      if (!WantsLow(n)) continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (IsFloat32(node.inputs[i]) && !KeepsFloat32(node, i)) wanted_[node.inputs[i]] = true;
      }
    }
  }

  bool KeepsFloat32(const Node& node, size_t input) const {
    switch (FindOp(node.op)->precision) {
      case Precision::kLow:
        return AcceptsFloat32Input(graph_, node, input, low_);
      case Precision::kMixedIo:
        return graph_.type(node.inputs[input]).shape != graph_.type(node.inputs[0]).shape;
      default:
        return false;
    }
  }

  bool WantsLow(size_t n) const {
    if (precision_[n] == Precision::kLow || precision_[n] == Precision::kMixedIo) return true;
    return precision_[n] == Precision::kPropagate && IsWanted(graph_.nodes()[n]);
  }

  bool IsWanted(const Node& node) const {
    return std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return wanted_[v]; });
  }

  // Marks weights, exact constants and kPropagate results of these. Casting them costs nothing in a step, since casts
  // of weights are hoisted.
  void MarkFreelyCastable() {
    freely_castable_.assign(graph_.values().size(), false);
    for (const GraphInput& input : graph_.inputs()) {
      freely_castable_[input.value] = input.kind == InputKind::kParameter || input.kind == InputKind::kFrozen;
    }
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      const auto freely_castable = [&](ValueId v) { return v == kNoValue || freely_castable_[v]; };
      const HostTensor* constant = graph_.FindConstant(node.outputs[0]);
      const bool all = constant != nullptr ? IsFloat32(node.outputs[0]) && IsExact(*constant, low_)
                                           : precision_[n] == Precision::kPropagate && !node.inputs.empty() &&
                                                 std::all_of(node.inputs.begin(), node.inputs.end(), freely_castable);
      for (ValueId v : node.outputs) freely_castable_[v] = all;
    }
  }

  // Returns true if all users accept `low`.
  bool HasOnlyLowPrecisionUsers(ValueId v) const {
    if (!wanted_[v]) return false;
    return !is_output_[v] && std::all_of(users_[v].begin(), users_[v].end(), [&](int32_t n) { return AcceptsLow(n); });
  }

  // Returns true if node n may read values in `low`: backward operators may, since they read saved values, and so may
  // comparisons.
  bool AcceptsLow(size_t n) const {
    const Node& node = graph_.nodes()[n];
    return WantsLow(n) || FindOp(node.op)->is_gradient ||
           (precision_[n] == Precision::kPropagate && !IsAnyFloat32(node.outputs));
  }

  bool IsLow(ValueId v) { return r_.Map(v).dtype() == low_; }

  bool PropagatesLow(const Node& node) {
    bool any = false;
    for (ValueId v : node.inputs) {
      if (!IsFloat32(v)) continue;
      if (!IsLow(v) && !freely_castable_[v]) return false;
      any |= IsLow(v);
    }
    return any && (IsWanted(node) || !IsAnyFloat32(node.outputs));
  }

  void Emit(const Node& node, Precision precision) {
    r_.b().set_source(node.source);
    if (node.op == "Cast" || !IsAnyFloat32(node.inputs)) {
      EmitAs(node, kNoCast);
    } else if (precision == Precision::kLow || (precision == Precision::kPropagate && PropagatesLow(node))) {
      EmitAs(node, low_);
    } else {
      EmitAs(node, kWide);
    }
  }

  static constexpr DType kNoCast = DType::kBool;

  // Emits the node with inputs of type `dtype`. Casts each output to the type that its users read.
  void EmitAs(const Node& node, DType dtype) {
    std::vector<Val> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId v = node.inputs[i];
      const bool wide = dtype == low_ && KeepsFloat32(node, i);
      inputs.push_back(IsFloat32(v) && dtype != kNoCast ? As(v, wide ? kWide : dtype) : r_.Map(v));
    }
    const std::vector<Val> outputs = r_.b().Ops(node.op, inputs, node.attrs);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId old = node.outputs[i];
      if (!outputs[i].valid()) return;
      r_.b().graph().SetValueName(outputs[i].id(), graph_.value(old).name);
      r_.Set(old, outputs[i]);
      if (!IsFloat32(old) || freely_castable_[old] || IsConstant(node)) continue;
      if (IsLow(old) ? !wanted_[old] : HasOnlyLowPrecisionUsers(old)) r_.Set(old, As(old, IsLow(old) ? kWide : low_));
    }
  }

  // Returns the value as `dtype`. All users share one Cast.
  Val As(ValueId old, DType dtype) {
    const Val now = r_.Map(old);
    if (!now.valid() || now.dtype() == dtype) return now;
    Val& cast = casts_[now.id()];
    if (!cast) cast = Cast(now, dtype);
    return cast;
  }

  const Graph& graph_;
  const DType low_;
  Rewriter r_;
  const Users users_;
  std::vector<bool> is_output_;                 // by value: it is a graph output
  std::vector<Precision> precision_;            // by node
  std::vector<bool> wanted_, freely_castable_;  // by value
  std::map<ValueId, Val> casts_;                // casts between kWide and low_, by new value
};

}  // namespace

absl::StatusOr<Graph> MixedPrecision(const Graph& graph, DType low) {
  const bool any =
      std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& n) { return IsProduct(graph, n); });
  if (!any) return graph;
  Graph result;
  RETURN_IF_ERROR(MixedPrecisionRewriter(graph, low, &result).Run());
  return result;
}

}  // namespace onnxtrain
