// Rules about numbers.
#include <array>
#include <cmath>

#include "frontend/ops/row.h"
#include "frontend/passes/rule.h"

namespace onnxtrain {
namespace {

// --- Operands that change nothing -----------------------------------------------------------------------------------

template <int kValue>
Val DropRight(const Site& s) {
  return IsSplat(s.in[1], kValue) ? s.Fit(s.in[0]) : Val();
}

template <int kValue>
Val DropEither(const Site& s) {
  if (IsSplat(s.in[1], kValue)) return s.Fit(s.in[0]);
  return IsSplat(s.in[0], kValue) ? s.Fit(s.in[1]) : Val();
}

Val DropoutOfNothing(const Site& s) { return s.attrs().Float("ratio") == 0 ? s.in[0] : Val(); }

// --- Functions that undo each other ---------------------------------------------------------------------------------

Val Twice(const Site& s) { return InputOf(s.in[0], s.node.op); }

Val NegOfReshapedNeg(const Site& s) { return Reshape(InputOf(InputOf(s.in[0], "Reshape"), "Neg"), s.out.shape); }

Val AddOfNeg(const Site& s) {
  if (const Val y = InputOf(s.in[1], "Neg")) return s.in[0] - y;
  const Val x = InputOf(s.in[0], "Neg");
  return x ? s.in[1] - x : Val();
}

Val SubOfNeg(const Site& s) {
  const Val y = InputOf(s.in[1], "Neg");
  return y ? s.in[0] + y : Val();
}

Val SubFromZero(const Site& s) { return IsFloat(s.out.dtype) && IsSplat(s.in[0], 0) ? -s.Fit(s.in[1]) : Val(); }

Val TimesMinusOne(const Site& s) {
  if (!IsFloat(s.out.dtype)) return Val();
  if (IsSplat(s.in[1], -1)) return -s.Fit(s.in[0]);
  return s.node.op == "Mul" && IsSplat(s.in[0], -1) ? -s.Fit(s.in[1]) : Val();
}

Val OneOver(const Site& s) {
  if (!IsFloat(s.out.dtype) || !IsSplat(s.in[0], 1)) return Val();
  const Val x = s.Fit(s.in[1]);
  return x ? s.b.Op("Reciprocal", {x}) : Val();
}

Val ReciprocalOfSqrt(const Site& s) { return Rsqrt(InputOf(s.in[0], "Sqrt")); }

Val SqrtOfReciprocal(const Site& s) { return Rsqrt(InputOf(s.in[0], "Reciprocal")); }

Val MulOfReciprocal(const Site& s) {
  if (const Val y = InputOf(s.in[1], "Reciprocal")) return s.in[0] / y;
  const Val x = InputOf(s.in[0], "Reciprocal");
  return x ? s.in[1] / x : Val();
}

Val DivOfReciprocal(const Site& s) {
  const Val y = InputOf(s.in[1], "Reciprocal");
  return y ? s.in[0] * y : Val();
}

// --- Powers ---------------------------------------------------------------------------------------------------------

// Roots and what is half or one and a half times such a power: x^¾ = √x·√√x.
Val PowOfConstant(const Site& s) {
  static constexpr struct {
    double exponent;
    std::string_view op;
  } kForms[] = {{0.5, "Sqrt"}, {-0.5, "Rsqrt"}, {-1, "Reciprocal"}};
  const auto exponent = SplatOf(s.in[1]);
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

// --- Constants in a row ---------------------------------------------------------------------------------------------

// v = x·c or v = x + c, with c a number.
struct Affine {
  Val x;
  double c;
};

std::optional<Affine> AsAffine(std::string_view op, Val a, Val b, bool product) {
  const bool swaps = op == (product ? "Mul" : "Add");
  if (!swaps && op != (product ? "Div" : "Sub")) return std::nullopt;
  const auto right = SplatOf(b);
  if (right.has_value()) return Affine{a, swaps ? *right : product ? 1 / *right : -*right};
  const auto left = swaps ? SplatOf(a) : std::nullopt;
  return left.has_value() ? std::optional(Affine{b, *left}) : std::nullopt;
}

// (x·a)·b → x·(ab), (x + a) + b → x + (a + b), also for quotients and differences. Only where the precision hides the
// different rounding and the constant stays a normal number; not where a sum nearly cancels, which is how some models
// round.
Val MergeConstants(const Site& s) {
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

// --- Choices and conversions ----------------------------------------------------------------------------------------

Val WhereOfConstant(const Site& s) {
  if (s.in[1].id() == s.in[2].id()) return s.Fit(s.in[1]);
  const auto condition = SplatOf(s.in[0]);
  return condition.has_value() ? s.Fit(s.in[*condition != 0 ? 1 : 2]) : Val();
}

Val WhereOfNot(const Site& s) {
  const Val c = InputOf(s.in[0], "Not");
  return c ? Where(c, s.in[2], s.in[1]) : Val();
}

Val CastToSame(const Site& s) { return s.in[0].dtype() == s.out.dtype ? s.in[0] : Val(); }

bool IsSigned(DType t) { return t >= DType::kInt8 && t <= DType::kInt64; }

// Does every value of type a have an equal of type b?
bool Widens(DType a, DType b) {
  if (a == b || a == DType::kBool) return true;
  if (IsStorage(a) || IsStorage(b)) return b == DType::kFloat32 || b == DType::kFloat64;
  if (b == DType::kBool || (IsFloat(a) && !IsFloat(b))) return false;
  if (IsFloat(a)) return SizeOf(a) < SizeOf(b);
  if (IsFloat(b)) return SizeOf(b) >= 2 * SizeOf(a) && SizeOf(b) >= 4;
  return IsSigned(a) == IsSigned(b) ? SizeOf(a) <= SizeOf(b) : IsSigned(b) && SizeOf(a) < SizeOf(b);
}

Val CastOfCast(const Site& s) {
  const Val x = InputOf(s.in[0], "Cast");
  return x && Widens(x.dtype(), s.in[0].dtype()) ? Cast(x, s.out.dtype) : Val();
}

}  // namespace

std::span<const Rule> ArithmeticRules() {
  static constexpr Rule kRules[] = {
      {"Add", DropEither<0>},
      {"Sub", DropRight<0>},
      {"Mul", DropEither<1>},
      {"Div", DropRight<1>},
      {"Pow", DropRight<1>},
      {"Or", DropEither<0>},
      {"And", DropEither<1>},
      {"Xor", DropEither<0>},
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
