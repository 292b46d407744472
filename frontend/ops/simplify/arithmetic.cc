// Simplifies arithmetic, selections and conversions.
#include <cmath>

#include "frontend/ops/simplify/simplify.h"

namespace onnxtrain {
namespace {

template <int kValue>
Val FoldRightIdentity(const SimplifyContext& s) {
  return IsSplat(s.in[1], kValue) ? s.Fit(s.in[0]) : Val();
}

template <int kValue>
Val FoldIdentity(const SimplifyContext& s) {
  if (IsSplat(s.in[1], kValue)) return s.Fit(s.in[0]);
  return IsSplat(s.in[0], kValue) ? s.Fit(s.in[1]) : Val();
}

Val Twice(const SimplifyContext& s) { return MatchInput(s.in[0], s.node.op); }

Val NegOfReshapedNeg(const SimplifyContext& s) {
  return Reshape(MatchInput(MatchInput(s.in[0], "Reshape"), "Neg"), s.out.shape);
}

Val AddOfNeg(const SimplifyContext& s) {
  if (const Val y = MatchInput(s.in[1], "Neg")) return s.in[0] - y;
  const Val x = MatchInput(s.in[0], "Neg");
  return x ? s.in[1] - x : Val();
}

Val SubOfNeg(const SimplifyContext& s) {
  const Val y = MatchInput(s.in[1], "Neg");
  return y ? s.in[0] + y : Val();
}

Val SubFromZero(const SimplifyContext& s) {
  return IsFloat(s.out.dtype) && IsSplat(s.in[0], 0) ? -s.Fit(s.in[1]) : Val();
}

Val TimesMinusOne(const SimplifyContext& s) {
  if (!IsFloat(s.out.dtype)) return Val();
  if (IsSplat(s.in[1], -1)) return -s.Fit(s.in[0]);
  return s.node.op == "Mul" && IsSplat(s.in[0], -1) ? -s.Fit(s.in[1]) : Val();
}

Val OneOver(const SimplifyContext& s) {
  if (!IsFloat(s.out.dtype) || !IsSplat(s.in[0], 1)) return Val();
  const Val x = s.Fit(s.in[1]);
  return x ? s.b.Op("Reciprocal", {x}) : Val();
}

Val ReciprocalOfSqrt(const SimplifyContext& s) { return Rsqrt(MatchInput(s.in[0], "Sqrt")); }

Val SqrtOfReciprocal(const SimplifyContext& s) { return Rsqrt(MatchInput(s.in[0], "Reciprocal")); }

Val MulOfReciprocal(const SimplifyContext& s) {
  if (const Val y = MatchInput(s.in[1], "Reciprocal")) return s.in[0] / y;
  const Val x = MatchInput(s.in[0], "Reciprocal");
  return x ? s.in[1] / x : Val();
}

Val DivOfReciprocal(const SimplifyContext& s) {
  const Val y = MatchInput(s.in[1], "Reciprocal");
  return y ? s.in[0] * y : Val();
}

// Rewrites powers to roots and their products: x^¾ = √x·√√x.
Val PowOfConstant(const SimplifyContext& s) {
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

// Matches v = x·c or v = x + c with a splat constant c.
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

// Rewrites (x·a)·b to x·(ab) and (x + a) + b to x + (a + b), also for quotients and differences, if the constant is a
// normal number. Keeps sums whose constants nearly cancel, by which some models round.
Val MergeConstants(const SimplifyContext& s) {
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

Val WhereOfConstant(const SimplifyContext& s) {
  if (s.in[1].id() == s.in[2].id()) return s.Fit(s.in[1]);
  const auto condition = FindSplat(s.in[0]);
  return condition.has_value() ? s.Fit(s.in[*condition != 0 ? 1 : 2]) : Val();
}

Val WhereOfNot(const SimplifyContext& s) {
  const Val c = MatchInput(s.in[0], "Not");
  return c ? Where(c, s.in[2], s.in[1]) : Val();
}

// A factor that is 1 where a condition is true (or false), else 0: a cast condition, possibly reshaped.
struct Gate {
  Val condition;
  bool negated = false;
};

std::optional<Gate> FindGate(Val v) {
  bool cast = false;
  Gate gate = {v};
  while (true) {
    Val next = MatchInput(gate.condition, "Reshape");
    if (!next && cast && (next = MatchInput(gate.condition, "Not"))) gate.negated = !gate.negated;
    if (!next && !cast) {
      next = MatchInput(gate.condition, "Cast");
      if (next && next.dtype() != DType::kBool) return std::nullopt;
      cast = next.valid();
    }
    if (!next) return cast ? std::optional(gate) : std::nullopt;
    gate.condition = next;
  }
}

// Rewrites c·x + (1 − c)·y, which tf2onnx writes for a selection, to Where(c, x, y).
Val SumOfGated(const SimplifyContext& s) {
  if (!MatchInput(s.in[0], "Mul") || !MatchInput(s.in[1], "Mul")) return Val();
  for (size_t i : {0, 1}) {
    for (size_t k : {0, 1}) {
      const Val c = MatchInput(s.in[0], "Mul", i), x = MatchInput(s.in[0], "Mul", 1 - i);
      const Val d = MatchInput(s.in[1], "Mul", k), y = MatchInput(s.in[1], "Mul", 1 - k);
      if (!c || !d || c.shape() != d.shape()) continue;
      const auto yes = FindGate(c), no = FindGate(d);
      if (!yes || !no || yes->condition.id() != no->condition.id() || yes->negated == no->negated) continue;
      const Val condition = Reshape(yes->condition, c.shape());
      return s.Fit(yes->negated ? Where(condition, y, x) : Where(condition, x, y));
    }
  }
  return Val();
}

// Rewrites c·x + other to a Where if c is a constant of ones and zeros, and the constant `other` is one number where c
// is 0, and 0 elsewhere.
Val ChoiceOfConstants(const SimplifyContext& s, Val c, Val x, Val other) {
  const HostTensor *gate = c ? c.constant() : nullptr, *rest = gate == nullptr ? nullptr : other.constant();
  if (rest == nullptr || gate->shape() != rest->shape() || gate->size() < 2) return Val();
  HostTensor condition({DType::kBool, gate->shape()});
  std::optional<double> fill;
  for (int64_t i = 0; i < gate->size(); ++i) {
    const double one = gate->At(i), number = rest->At(i);
    if ((one != 0 && one != 1) || (one == 1 && number != 0)) return Val();
    condition.SetInt(i, one == 1);
    if (one == 0 && fill.value_or(number) != number) return Val();
    if (one == 0) fill = number;
  }
  if (!fill.has_value()) return Val();
  const DType type = s.out.dtype;
  return s.Fit(Where(s.b.Constant(std::move(condition)), x, s.b.Scalar(type, *fill)));
}

Val SumOfGatedConstants(const SimplifyContext& s) {
  for (size_t i : {0, 1}) {
    if (s.in[1 - i].constant() == nullptr) continue;
    for (size_t k : {0, 1}) {
      const Val c = MatchInput(s.in[i], "Mul", k), x = MatchInput(s.in[i], "Mul", 1 - k);
      if (const Val choice = ChoiceOfConstants(s, c, x, s.in[1 - i])) return choice;
    }
  }
  return Val();
}

Val CastToSame(const SimplifyContext& s) { return s.in[0].dtype() == s.out.dtype ? s.in[0] : Val(); }

bool IsSigned(DType t) { return t >= DType::kInt8 && t <= DType::kInt64; }

// Returns true if type b represents every value of type a.
bool IsPromotion(DType a, DType b) {
  if (a == b || a == DType::kBool) return true;
  if (IsStorage(a) || IsStorage(b)) return b == DType::kFloat32 || b == DType::kFloat64;
  if (b == DType::kBool || (IsFloat(a) && !IsFloat(b))) return false;
  if (IsFloat(a)) return DTypeSize(a) < DTypeSize(b);
  if (IsFloat(b)) return DTypeSize(b) >= 2 * DTypeSize(a) && DTypeSize(b) >= 4;
  return IsSigned(a) == IsSigned(b) ? DTypeSize(a) <= DTypeSize(b) : IsSigned(b) && DTypeSize(a) < DTypeSize(b);
}

Val CastOfCast(const SimplifyContext& s) {
  const Val x = MatchInput(s.in[0], "Cast");
  return x && IsPromotion(x.dtype(), s.in[0].dtype()) ? Cast(x, s.out.dtype) : Val();
}

// Moves a Cast before a Reshape, so that users in different shapes share the Cast.
Val CastOfReshape(const SimplifyContext& s) {
  const Val x = MatchInput(s.in[0], "Reshape");
  return x ? Reshape(Cast(x, s.out.dtype), s.out.shape) : Val();
}

}  // namespace

Val SimplifyAdd(const SimplifyContext& s) {
  return FirstOf<FoldIdentity<0>, AddOfNeg, MergeConstants, SumOfGated, SumOfGatedConstants, AddOfSliceGrads>(s);
}
Val SimplifySub(const SimplifyContext& s) {
  return FirstOf<FoldRightIdentity<0>, SubOfNeg, SubFromZero, MergeConstants>(s);
}
Val SimplifyMul(const SimplifyContext& s) {
  return FirstOf<FoldIdentity<1>, TimesMinusOne, MulOfReciprocal, MergeConstants>(s);
}
Val SimplifyDiv(const SimplifyContext& s) {
  return FirstOf<FoldRightIdentity<1>, TimesMinusOne, OneOver, DivOfReciprocal, MergeConstants>(s);
}
Val SimplifyPow(const SimplifyContext& s) { return FirstOf<FoldRightIdentity<1>, PowOfConstant>(s); }
Val SimplifyOr(const SimplifyContext& s) { return FoldIdentity<0>(s); }
Val SimplifyAnd(const SimplifyContext& s) { return FoldIdentity<1>(s); }
Val SimplifyXor(const SimplifyContext& s) { return FoldIdentity<0>(s); }

Val SimplifyNeg(const SimplifyContext& s) { return FirstOf<Twice, NegOfReshapedNeg>(s); }
Val SimplifyNot(const SimplifyContext& s) { return Twice(s); }
Val SimplifyReciprocal(const SimplifyContext& s) { return FirstOf<Twice, ReciprocalOfSqrt>(s); }
Val SimplifySqrt(const SimplifyContext& s) { return SqrtOfReciprocal(s); }

Val SimplifyWhere(const SimplifyContext& s) { return FirstOf<WhereOfConstant, WhereOfNot>(s); }
Val SimplifyCast(const SimplifyContext& s) { return FirstOf<CastToSame, CastOfCast, CastOfReshape>(s); }
Val SimplifyDropout(const SimplifyContext& s) { return s.attrs().Float("ratio") == 0 ? s.in[0] : Val(); }

}  // namespace onnxtrain
