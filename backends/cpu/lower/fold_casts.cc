#include <algorithm>

#include "backends/cpu/kernels/conv.h"
#include "backends/cpu/lower/passes.h"
#include "backends/cpu/ops/ops.h"
#include "backends/cpu/runtime/dnnl_call.h"
#include "backends/cpu/runtime/kernel.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/ops/row.h"
#include "frontend/passes/match.h"

namespace onnxtrain::cpu {
namespace {

using Vals = std::vector<Val>;

ValueId BeforeUpcast(const Pattern& p, ValueId v) { return p.BeforeCast(v, DType::kBFloat16, DType::kFloat32); }
ValueId BeforeDowncast(const Pattern& p, ValueId v) { return p.BeforeCast(v, DType::kFloat32, DType::kBFloat16); }

bool IsDowncast(const Pattern& p, const Node& node) {
  return node.op == "Cast" && BeforeDowncast(p, node.outputs[0]) != kNoValue;
}

// --- Round trips

bool IsBf16Conv(const Pattern& p, ValueId v) {
  const Node* node = p.graph().producer(v);
  const OpRow* row = node == nullptr ? nullptr : FindOp(node->op);
  return row != nullptr && row->precision == Precision::kLow && row->layout.inputs != 0 &&
         BeforeUpcast(p, node->inputs[0]) != kNoValue;
}

// Returns true if all users read bf16 or will be fused into chains that round their results.
bool AllUsersReadBf16(const Pattern& p, ValueId v) {
  return !p.users(v).empty() && std::ranges::all_of(p.users(v), [&](int32_t n) {
    const Node& node = p.graph().nodes()[n];
    return SupportsBf16(node.op) || (FindOp(node.op)->elementwise && IsOnlyRounded(p, node.outputs[0]));
  });
}

bool IsRoundedAfterRelu(const Pattern& p, ValueId v) {
  const Node* relu = p.SoleUser(v, "Relu");
  return relu != nullptr && IsOnlyRounded(p, relu->outputs[0]);
}

// Returns true if `exact` is normalized and its rounded copy v is added to an earlier value, as in a residual block.
bool IsNormInSum(const Pattern& p, ValueId exact, ValueId v) {
  const Node *norm = p.graph().producer(exact), *sum = p.SoleUser(v, "Add");
  const bool normalized =
      norm != nullptr && FindOp(norm->op)->precision == Precision::kMixedIo && norm->outputs[0] == exact;
  if (!normalized || sum == nullptr) return false;
  const ValueId residual = BeforeCasts(p, OtherOperand(*sum, v));
  return p.graph().value(residual).node < p.graph().value(exact).node;
}

// Returns the value before the round trip that ends with v if users of v can read it instead, else kNoValue.
ValueId BeforeRoundTrip(const Pattern& p, ValueId v) {
  const ValueId rounded = BeforeUpcast(p, v);
  const ValueId exact = rounded != kNoValue && p.HasOneUse(rounded) ? BeforeDowncast(p, rounded) : kNoValue;
  if (exact == kNoValue) return kNoValue;
  const bool skips =
      (IsBf16Conv(p, exact) && !AllUsersReadBf16(p, v)) || IsRoundedAfterRelu(p, v) || IsNormInSum(p, exact, v);
  return skips ? exact : kNoValue;
}

// --- Kernels of bf16

class CastFolder {
 public:
  CastFolder(const Pattern& pattern, Rewriter& r) : p_(pattern), r_(r) {}

  // Returns the new outputs of the node, or nothing to keep it.
  std::optional<Vals> Fold(const Node& node) {
    const Val x = node.inputs.empty() ? Val() : r_.Map(node.inputs[0]);
    if (IsDowncast(p_, node)) return x.dtype() == DType::kBFloat16 ? std::optional(Vals{x}) : std::nullopt;
    if (node.op == "Conv" || node.op == "ConvTranspose") return RoundInConv(node);
    if (const uint32_t inputs = FindBf16Inputs(p_.graph(), node); inputs != 0) return ReadBf16(node, inputs);
    return FindOp(node.op)->elementwise && node.op != "Cast" ? CloneCasts(node) : std::nullopt;
  }

 private:
  std::optional<Vals> RoundInConv(const Node& node) {
    const ConvKind kind = node.op == "Conv" ? ConvKind::kForward : ConvKind::kInputGrad;
    const bool relu = kind == ConvKind::kForward && IsRoundedAfterRelu(p_, node.outputs[0]);
    if (p_.graph().type(node.inputs[0]).dtype != DType::kBFloat16 || (!relu && !IsOnlyRounded(p_, node.outputs[0])) ||
        !SupportsBf16Output(kind, MakeConvGeometry(kind, p_.graph(), node)))
      return std::nullopt;
    Attrs attrs = node.attrs;
    attrs.Set("to", std::string("bf16"));
    const Val y = r_.b().Op(node.op, r_.MapOperands(node), attrs);
    return relu ? Vals{Cast(y, DType::kFloat32)} : SetBf16(node, {y});  // ReluAfterConv fuses the Relu
  }

  std::optional<Vals> ReadBf16(const Node& node, uint32_t inputs) {
    if (!IsOnlyRounded(p_, node.outputs[0])) return std::nullopt;
    Vals in = r_.MapOperands(node);
    for (size_t i = 0; i < in.size(); ++i) {
      if ((inputs >> i & 1) == 0 || !in[i]) continue;
      const ValueId low = BeforeUpcast(p_, node.inputs[i]);
      if (low == kNoValue) return std::nullopt;
      in[i] = r_.Map(low);
    }
    return SetBf16(node, r_.b().Ops(node.op, in, node.attrs));
  }

  // Makes output 0 bf16, which removes its users, casts to bf16.
  Vals SetBf16(const Node& node, Vals outputs) {
    if (!r_.b().status().ok()) return outputs;
    r_.Set(node.outputs[0], outputs[0]);
    outputs[0] = Val();
    return outputs;
  }

  std::optional<Vals> CloneCasts(const Node& node) {
    Vals in = r_.MapOperands(node);
    bool any = false;
    for (size_t i = 0; i < in.size(); ++i) {
      const ValueId low = BeforeUpcast(p_, node.inputs[i]);
      if (low == kNoValue) continue;
      const bool shared = p_.users(node.inputs[i]).size() > 1;
      const ValueId exact = shared ? kNoValue : BeforeFusedRounding(low, node);
      if (!shared && exact == kNoValue) continue;
      in[i] = shared ? Cast(r_.Map(low), DType::kFloat32) : r_.Map(exact);
      any = true;
    }
    return any ? std::optional(r_.b().Ops(node.op, in, node.attrs)) : std::nullopt;
  }

  // Returns the float32 value from which `low` was cast if its producer and the user will be fused, else kNoValue.
  ValueId BeforeFusedRounding(ValueId low, const Node& user) const {
    const ValueId exact = BeforeDowncast(p_, low);
    const Node* producer = exact == kNoValue ? nullptr : p_.graph().producer(exact);
    const Node* before =
        producer == nullptr || producer->op != "Relu" ? nullptr : p_.graph().producer(producer->inputs[0]);
    const bool in_conv = before != nullptr && before->op == "Conv" && p_.HasOneUse(before->outputs[0]);
    const bool fuses = producer != nullptr && FindOp(producer->op)->elementwise && !in_conv &&
                       p_.users(exact).size() == 1 && p_.users(low).size() == 1 && !p_.IsOutput(low) &&
                       p_.graph().type(low).shape == p_.graph().type(user.outputs[0]).shape;
    return fuses ? exact : kNoValue;
  }

  const Pattern& p_;
  Rewriter& r_;
};

// --- Products

// Computes v, which FindProduct has matched, in float32 and without the roundings before it.
Val ComputeExact(Rewriter& r, ValueId v) {
  const Type& type = r.from().type(v);
  if (type.dtype == DType::kFloat32) return r.Map(v);
  const Node& node = *r.from().producer(v);
  if (node.op != "MatMul" && node.op != "cpu.MatMul") {  // a cast or a view
    const Val x = ComputeExact(r, node.inputs[0]);
    return Reinterpret(x, {x.dtype(), type.shape, type.layout});
  }
  Attrs attrs = node.attrs;
  attrs.Set("to", std::string("f32"));
  return r.b().Op("cpu.MatMul", r.MapOperands(node), attrs);
}

std::optional<Vals> WidenProduct(const Pattern& p, Rewriter& r, const Node& node) {
  const bool widens = node.op == "Cast" && BeforeUpcast(p, node.outputs[0]) != kNoValue;
  if (!widens && node.op != "Add") return std::nullopt;
  const ProductChain product = FindProduct(p, node.outputs[0], ProductChain::kRounded);
  if (product.node == nullptr || !product.IsBf16(p.graph())) return std::nullopt;
  if (widens) return Vals{ComputeExact(r, node.inputs[0])};
  return Vals{r.Map(OtherOperand(node, product.bias)) + Cast(r.Map(BeforeCasts(p, product.bias)), DType::kFloat32)};
}

}  // namespace

absl::StatusOr<Graph> EliminateCastRoundTrips(const Graph& graph) {
  const Pattern pattern(graph);
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<Vals> {
    const ValueId exact = node.op == "Cast" ? BeforeRoundTrip(pattern, node.outputs[0]) : kNoValue;
    return exact == kNoValue ? std::nullopt : std::optional(Vals{r.Map(exact)});
  });
}

absl::StatusOr<Graph> FoldCasts(const Graph& graph) {
  const Pattern pattern(graph);
  return Rewrite(graph, [&](Rewriter& r, const Node& node) { return CastFolder(pattern, r).Fold(node); });
}

absl::StatusOr<Graph> WidenProducts(const Graph& graph) {
  const Pattern pattern(graph);
  return Rewrite(graph, [&](Rewriter& r, const Node& node) { return WidenProduct(pattern, r, node); });
}

}  // namespace onnxtrain::cpu
