#include "backends/promote_types.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "frontend/passes/rewrite.h"

namespace onnxtrain {

bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

namespace {

using Vals = std::vector<Val>;
using IsNarrow = bool (*)(DType dtype);

bool IsUnsigned(DType dtype) { return dtype == DType::kUInt16 || dtype == DType::kUInt32 || dtype == DType::kUInt64; }

// Casts the inputs to `wide` and the outputs back to the node's types.
Vals PromoteNode(DType wide, IsNarrow narrow, Rewriter& r, const Node& node) {
  Vals in;
  for (ValueId v : node.inputs) {
    const bool cast = v != kNoValue && narrow(r.from().type(v).dtype);
    in.push_back(cast ? Cast(r.Map(v), wide) : r.Map(v));
  }
  Attrs attrs = node.attrs;
  if (attrs.Has("dtype")) attrs.Set("dtype", std::string(ToString(wide)));
  Vals out = r.b().Ops(node.op, in, attrs);
  for (size_t i = 0; i < out.size(); ++i) {
    const DType dtype = r.from().type(node.outputs[i]).dtype;
    if (narrow(dtype)) out[i] = Cast(out[i], dtype);
  }
  return out;
}

// Unsigned 64-bit integers are computed as signed integers of the same bits. Operators that wrap around give the right
// bits; comparisons, divisions and the like need the functions below, most of which use this constant.
Val Int64Min(Builder& b) {
  HostTensor int64_min({DType::kInt64, {}});
  int64_min.SetInt(0, std::numeric_limits<int64_t>::min());
  return b.Constant(std::move(int64_min));
}

// Return the bits of a u64 as i64; ToOrderedBits also offsets them by 2^63, so that the signed order equals the
// unsigned one.
Val ToInt64Bits(Val x) { return Cast(x, DType::kInt64); }
Val ToOrderedBits(Val x) { return ToInt64Bits(x) + Int64Min(x.b()); }

Vals Compare(Rewriter& r, const Node& node, const Vals& in) {
  Vals ordered;
  for (const Val& x : in) ordered.push_back(ToOrderedBits(x));
  Vals out = r.b().Ops(node.op, ordered, node.attrs);
  const bool same = r.from().type(node.outputs[0]).dtype == DType::kUInt64;
  return {same ? Cast(out[0] + Int64Min(r.b()), DType::kUInt64) : out[0]};
}

// Returns x / 2 of an unsigned x. The signed quotient is rounded towards zero and, if the sign bit is set, too small by
// 2^63.
Val HalveUnsigned(Val x) {
  const Val quotient = x / 2.0, zero = x.b().Scalar(DType::kInt64, 0);
  const Val floor = quotient - Cast(Less(x, quotient * 2.0), DType::kInt64);
  return Where(Less(x, zero), floor - Int64Min(x.b()), floor);
}

// Quotient and remainder of an unsigned division, computed by a signed division of half the dividend (Warren, Hacker's
// Delight, 9-3).
struct Division {
  Val quotient, remainder;
};

Division Divide(Val a, Val b) {
  const Val zero = a.b().Scalar(DType::kInt64, 0), one = a.b().Scalar(DType::kInt64, 1), int64_min = Int64Min(a.b());
  const auto below = [&](Val x, Val y) { return Cast(Less(x + int64_min, y + int64_min), DType::kInt64); };
  const Val large = Less(b, zero);
  const Val q = HalveUnsigned(a) / Where(large, one, b) * 2.0;
  const Val small = q + (one - below(a - q * b, b));
  const Val quotient = Where(large, one - below(a, b), small);
  return {quotient, a - quotient * b};
}

Vals Quotient(Rewriter&, const Node&, const Vals& in) {
  return {Cast(Divide(ToInt64Bits(in[0]), ToInt64Bits(in[1])).quotient, DType::kUInt64)};
}
Vals Remainder(Rewriter&, const Node&, const Vals& in) {
  return {Cast(Divide(ToInt64Bits(in[0]), ToInt64Bits(in[1])).remainder, DType::kUInt64)};
}

Vals Same(Rewriter& r, const Node& node, const Vals& in) {
  return {Expand(in[0], r.from().type(node.outputs[0]).shape)};
}

Vals Sign(Rewriter& r, const Node&, const Vals& in) { return {Cast(Cast(in[0], DType::kBool), DType::kUInt64)}; }

using Rule = Vals (*)(Rewriter& r, const Node& node, const Vals& in);

// Returns null if the signed operator computes the right bits.
Rule FindRuleFor64Bits(std::string_view op) {
  static const auto* rules = new std::map<std::string_view, Rule>{
      {"Less", Compare},   {"LessOrEqual", Compare}, {"Greater", Compare},   {"GreaterOrEqual", Compare},
      {"Min", Compare},    {"Max", Compare},         {"ReduceMin", Compare}, {"ReduceMax", Compare},
      {"ArgMin", Compare}, {"ArgMax", Compare},      {"Div", Quotient},      {"Mod", Remainder},
      {"Abs", Same},       {"Relu", Same},           {"PRelu", Same},        {"Sign", Sign},
  };
  const auto it = rules->find(op);
  return it == rules->end() ? nullptr : it->second;
}

Vals ComputeUnsigned(Rewriter& r, const Node& node) {
  const bool wide = r.from().type(node.inputs.empty() ? node.outputs[0] : node.inputs[0]).dtype == DType::kUInt64;
  const Rule rule = wide ? FindRuleFor64Bits(node.op) : nullptr;
  if (rule == nullptr) return PromoteNode(DType::kInt64, IsUnsigned, r, node);
  Vals in;
  for (ValueId v : node.inputs) in.push_back(r.Map(v));
  return rule(r, node, in);
}

bool UsesType(const Graph& graph, const Node& node, IsNarrow narrow) {
  const auto is_narrow = [&](ValueId v) { return v != kNoValue && narrow(graph.type(v).dtype); };
  return std::any_of(node.inputs.begin(), node.inputs.end(), is_narrow) ||
         std::any_of(node.outputs.begin(), node.outputs.end(), is_narrow);
}

}  // namespace

absl::StatusOr<Graph> PromoteHalfToFloat(const Graph& graph, const IsUnsupported& is_unsupported) {
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<Vals> {
    if (!UsesType(graph, node, IsHalf) || !is_unsupported(graph, node)) return std::nullopt;
    return PromoteNode(DType::kFloat32, IsHalf, r, node);
  });
}

absl::StatusOr<Graph> PromoteUnsignedToInt64(const Graph& graph, const IsUnsupported& is_unsupported) {
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<Vals> {
    if (!UsesType(graph, node, IsUnsigned) || !is_unsupported(graph, node)) return std::nullopt;
    return ComputeUnsigned(r, node);
  });
}

}  // namespace onnxtrain
