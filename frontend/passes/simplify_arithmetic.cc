// Simplification of arithmetic.
#include <array>
#include <cmath>

#include "frontend/ops/row.h"
#include "frontend/passes/rule.h"

namespace onnxtrain {
namespace {

// --- Neutral operands

template <int kValue>
Val FoldRightIdentity(const NodeContext& s) {
  return IsSplat(s.in[1], kValue) ? s.Fit(s.in[0]) : Val();
}

template <int kValue>
Val FoldIdentity(const NodeContext& s) {
  if (IsSplat(s.in[1], kValue)) return s.Fit(s.in[0]);
  return IsSplat(s.in[0], kValue) ? s.Fit(s.in[1]) : Val();
}

Val DropoutOfNothing(const NodeContext& s) { return s.attrs().Float("ratio") == 0 ? s.in[0] : Val(); }

// --- Inverse functions

Val Twice(const NodeContext& s) { return MatchInput(s.in[0], s.node.op); }

Val NegOfReshapedNeg(const NodeContext& s) {
  return Reshape(MatchInput(MatchInput(s.in[0], "Reshape"), "Neg"), s.out.shape);
}

Val AddOfNeg(const NodeContext& s) {
  if (const Val y = MatchInput(s.in[1], "Neg")) return s.in[0] - y;
  const Val x = MatchInput(s.in[0], "Neg");
  return x ? s.in[1] - x : Val();
}

Val SubOfNeg(const NodeContext& s) {
  const Val y = MatchInput(s.in[1], "Neg");
  return y ? s.in[0] + y : Val();
}

Val SubFromZero(const NodeContext& s) { return IsFloat(s.out.dtype) && IsSplat(s.in[0], 0) ? -s.Fit(s.in[1]) : Val(); }

Val TimesMinusOne(const NodeContext& s) {
  if (!IsFloat(s.out.dtype)) return Val();
  if (IsSplat(s.in[1], -1)) return -s.Fit(s.in[0]);
  return s.node.op == "Mul" && IsSplat(s.in[0], -1) ? -s.Fit(s.in[1]) : Val();
}

Val OneOver(const NodeContext& s) {
  if (!IsFloat(s.out.dtype) || !IsSplat(s.in[0], 1)) return Val();
  const Val x = s.Fit(s.in[1]);
  return x ? s.b.Op("Reciprocal", {x}) : Val();
}

Val ReciprocalOfSqrt(const NodeContext& s) { return Rsqrt(MatchInput(s.in[0], "Sqrt")); }

Val SqrtOfReciprocal(const NodeContext& s) { return Rsqrt(MatchInput(s.in[0], "Reciprocal")); }

Val MulOfReciprocal(const NodeContext& s) {
  if (const Val y = MatchInput(s.in[1], "Reciprocal")) return s.in[0] / y;
  const Val x = MatchInput(s.in[0], "Reciprocal");
  return x ? s.in[1] / x : Val();
}

Val DivOfReciprocal(const NodeContext& s) {
  const Val y = MatchInput(s.in[1], "Reciprocal");
  return y ? s.in[0] * y : Val();
}

// --- Powers

// Rewrites powers to roots and their products: x^¾ = √x·√√x.
Val PowOfConstant(const NodeContext& s) {
  static constexpr struct {
    double exponent;
    std::string_view op;
  } kForms[] = {{0.5, "Sqrt"}, {-0.5, "Rsqrt"}, {-1, "Reciprocal"}};
  const auto exponent = FindSplat(s.in[1]);
  if (!exponent.has_value() || !IsFloat(s.out.dtype)) return Val();
  if (*exponent == 2) return s.Fit(s.in[0] * s.in[0]);
  for (const auto& form : kForms) {
    const double ratio = *exponent / form.exponent;
    if (ratio != 1 && ratio != 0.5 && ratio != 1.5) continue;
    const Val root = s.b.Op(form.op, {s.in[0]});
    return s.Fit(ratio == 1 ? root : ratio == 0.5 ? Sqrt(root) : root * Sqrt(root));
  }
  return Val();
}

// --- Chains of constants

// v = x·c or v = x + c, for a splat constant c.
struct Affine {
  Val x;
  double c;
};

std::optional<Affine> AsAffine(std::string_view op, Val a, Val b, bool product) {
  const bool swaps = op == (product ? "Mul" : "Add");
  if (!swaps && op != (product ? "Div" : "Sub")) return std::nullopt;
  const auto right = FindSplat(b);
  if (right.has_value()) return Affine{a, swaps ? *right : product ? 1 / *right : -*right};
  const auto left = swaps ? FindSplat(a) : std::nullopt;
  return left.has_value() ? std::optional(Affine{b, *left}) : std::nullopt;
}

// Merges (x·a)·b → x·(ab), (x + a) + b → x + (a + b), also for quotients and differences, if the constant stays a
// normal number. Keeps sums that nearly cancel: some models round by them.
Val MergeConstants(const NodeContext& s) {
  if (s.out.dtype != DType::kFloat32 && s.out.dtype != DType::kFloat64) return Val();
  const bool product = s.node.op == "Mul" || s.node.op == "Div";
  const auto outer = AsAffine(s.node.op, s.in[0], s.in[1], product);
  const Node* node = outer.has_value() ? s.b.graph().producer(outer->x.id()) : nullptr;
  if (node == nullptr || node->inputs.size() != 2 || outer->x.type() != s.out) return Val();
  const auto inner = AsAffine(node->op, s.b.Wrap(node->inputs[0]), s.b.Wrap(node->inputs[1]), product);
  if (!inner.has_value() || inner->x.type() != s.out) return Val();
  const double c = product ? outer->c * inner->c : outer->c + inner->c;
  const double least = product ? 1e-30 : 1e-3 * std::abs(inner->c);
  if (!(std::abs(c) > least && std::abs(c) < 1e30)) return Val();
  return product ? inner->x * c : inner->x + c;
}

// --- Choices and conversions

Val WhereOfConstant(const NodeContext& s) {
  if (s.in[1].id() == s.in[2].id()) return s.Fit(s.in[1]);
  const auto condition = FindSplat(s.in[0]);
  return condition.has_value() ? s.Fit(s.in[*condition != 0 ? 1 : 2]) : Val();
}

Val WhereOfNot(const NodeContext& s) {
  const Val c = MatchInput(s.in[0], "Not");
  return c ? Where(c, s.in[2], s.in[1]) : Val();
}

Val CastToSame(const NodeContext& s) { return s.in[0].dtype() == s.out.dtype ? s.in[0] : Val(); }

bool IsSigned(DType t) { return t >= DType::kInt8 && t <= DType::kInt64; }

// Returns whether type b represents every value of type a.
bool IsPromotion(DType a, DType b) {
  if (a == b || a == DType::kBool) return true;
  if (IsStorage(a) || IsStorage(b)) return b == DType::kFloat32 || b == DType::kFloat64;
  if (b == DType::kBool || (IsFloat(a) && !IsFloat(b))) return false;
  if (IsFloat(a)) return DTypeSize(a) < DTypeSize(b);
  if (IsFloat(b)) return DTypeSize(b) >= 2 * DTypeSize(a) && DTypeSize(b) >= 4;
  return IsSigned(a) == IsSigned(b) ? DTypeSize(a) <= DTypeSize(b) : IsSigned(b) && DTypeSize(a) < DTypeSize(b);
}

Val CastOfCast(const NodeContext& s) {
  const Val x = MatchInput(s.in[0], "Cast");
  return x && IsPromotion(x.dtype(), s.in[0].dtype()) ? Cast(x, s.out.dtype) : Val();
}

}  // namespace

std::span<const Rule> ArithmeticRules() {
  static constexpr Rule kRules[] = {
      {"Add", FoldIdentity<0>},
      {"Sub", FoldRightIdentity<0>},
      {"Mul", FoldIdentity<1>},
      {"Div", FoldRightIdentity<1>},
      {"Pow", FoldRightIdentity<1>},
      {"Or", FoldIdentity<0>},
      {"And", FoldIdentity<1>},
      {"Xor", FoldIdentity<0>},
      {"Dropout", DropoutOfNothing},
      {"Neg", Twice},
      {"Not", Twice},
      {"Reciprocal", Twice},
      {"Neg", NegOfReshapedNeg},
      {"Add", AddOfNeg},
      {"Sub", SubOfNeg},
      {"Sub", SubFromZero},
      {"Mul", TimesMinusOne},
      {"Div", TimesMinusOne},
      {"Div", OneOver},
      {"Mul", MulOfReciprocal},
      {"Div", DivOfReciprocal},
      {"Reciprocal", ReciprocalOfSqrt},
      {"Sqrt", SqrtOfReciprocal},
      {"Pow", PowOfConstant},
      {"Add", MergeConstants},
      {"Sub", MergeConstants},
      {"Mul", MergeConstants},
      {"Div", MergeConstants},
      {"Where", WhereOfConstant},
      {"Where", WhereOfNot},
      {"Cast", CastToSame},
      {"Cast", CastOfCast},
  };
  return kRules;
}

}  // namespace onnxtrain
