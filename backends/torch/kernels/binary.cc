// Elementwise operators of two or three inputs with broadcasting. Wide unsigned integers are stored as signed integers
// of the same width and bits.
#include <ATen/ops/add.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_not.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/div.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/fmod.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/le.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/logical_xor.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include "backends/torch/kernel.h"

namespace onnxtrain::aten {
namespace {

using BinaryOut = at::Tensor& (*)(at::Tensor& out, const at::Tensor& a, const at::Tensor& b);

template <BinaryOut F>
Run Binary(const Args& a) {
  return [x = a.in[0], z = a.in[1], y = a.out[0]]() mutable { F(y, x, z); };
}

Run Add(const Args& a) {
  return [x = a.in[0], z = a.in[1], y = a.out[0]]() mutable { at::add_out(y, x, z); };
}

Run Sub(const Args& a) {
  return [x = a.in[0], z = a.in[1], y = a.out[0]]() mutable { at::sub_out(y, x, z); };
}

// Computes x / -1 as -x in wrapping arithmetic, because the division traps on x86 if the quotient overflows. x / 0 is
// 0.
Run IntegerDiv(const Args& a) {
  return [x = a.in[0], z = a.in[1], y = a.out[0]] {
    const at::Tensor minus = z.eq(-1), none = z.eq(0);
    const at::Tensor quotient = at::div(x, z.masked_fill(minus.logical_or(none), 1), "trunc");
    y.copy_(at::where(minus, x.neg(), quotient).masked_fill_(none, 0));
  };
}

Run Div(const Args& a) { return a.in[0].is_floating_point() ? Binary<at::div_out>(a) : IntegerDiv(a); }

template <BinaryOut F>
Run ModBy(const Args& a) {
  if (a.in[0].is_floating_point()) return Binary<F>(a);
  // Replaces the divisors -1 and 0, for which hardware traps, by 1: the remainder is 0 for all three.
  return
      [x = a.in[0], z = a.in[1], y = a.out[0]]() mutable { F(y, x, z.masked_fill(z.eq(-1).logical_or(z.eq(0)), 1)); };
}

Run Mod(const Args& a) { return a.attrs().Int("fmod") != 0 ? ModBy<at::fmod_out>(a) : ModBy<at::remainder_out>(a); }

Run PRelu(const Args& a) {
  return [x = a.in[0], slope = a.in[1], y = a.out[0]] { y.copy_(at::where(x.lt(0), x * slope, x)); };
}

Run Where(const Args& a) {
  return [c = a.in[0], x = a.in[1], z = a.in[2], y = a.out[0]]() mutable { at::where_out(y, c, x, z); };
}

// Computes max(x, 0) - x t + log1p(exp(-|x|)).
Run BinaryCrossEntropyWithLogits(const Args& a) {
  return [x = a.in[0], t = a.in[1], y = a.out[0]] {
    y.copy_(at::clamp_min(x, 0).sub_(x * t).add_(x.abs().neg_().exp_().log1p_()));
  };
}

Run Not(const Args& a) {
  return [x = a.in[0], y = a.out[0]]() mutable { at::bitwise_not_out(y, x); };
}

// Widens an unsigned number, stored as signed, to 64 bits with leading zeros.
at::Tensor Wide(const at::Tensor& x) {
  const at::Tensor wide = x.to(at::kLong);
  return x.element_size() == 8 ? wide : at::bitwise_and(wide, (int64_t{1} << (8 * x.element_size())) - 1);
}

// Returns `shifted`, or 0 for shift counts of 64 or more. u64 counts of 2^63 or more appear as negative numbers.
at::Tensor Shifted(const at::Tensor& shifted, const at::Tensor& by) {
  return at::where(by.lt(0).logical_or_(by.gt(63)), at::zeros_like(shifted), shifted);
}

Run ShiftLeft(const Args& a) {
  return [x = a.in[0], z = a.in[1], y = a.out[0]] {
    const at::Tensor by = Wide(z);
    y.copy_(Shifted(at::bitwise_left_shift(Wide(x), by.clamp(0, 63)), by));
  };
}

// Shifts by one bit and clears the sign, so that the remaining shift may be arithmetic.
Run ShiftRight(const Args& a) {
  return [x = a.in[0], z = a.in[1], y = a.out[0]] {
    const at::Tensor by = Wide(z), wide = Wide(x);
    const at::Tensor once = at::bitwise_and(at::bitwise_right_shift(wide, 1), INT64_MAX);
    const at::Tensor rest = at::bitwise_right_shift(once, (by - 1).clamp(0, 62));
    y.copy_(Shifted(at::where(by.eq(0), wide, rest), by));
  };
}

}  // namespace

std::span<const NamedKernel> BinaryKernels() {
  static constexpr NamedKernel kKernels[] = {
      {"Add", {Add, Types::kNumber}},
      {"Sub", {Sub, Types::kNumber}},
      {"Mul", {Binary<at::mul_out>, Types::kNumber}},
      {"Div", {Div, Types::kNumber}},
      {"Pow", {Binary<at::pow_out>, Types::kNumber}},
      {"Min", {Binary<at::minimum_out>, Types::kNumber}},
      {"Max", {Binary<at::maximum_out>, Types::kNumber}},
      {"Mod", {Mod, Types::kNumber}},
      {"PRelu", {PRelu, Types::kNumber}},
      {"Equal", {Binary<at::eq_out>, Types::kNative}},
      {"Less", {Binary<at::lt_out>, Types::kNative}},
      {"LessOrEqual", {Binary<at::le_out>, Types::kNative}},
      {"Greater", {Binary<at::gt_out>, Types::kNative}},
      {"GreaterOrEqual", {Binary<at::ge_out>, Types::kNative}},
      {"And", {Binary<at::logical_and_out>, Types::kNative}},
      {"Or", {Binary<at::logical_or_out>, Types::kNative}},
      {"Xor", {Binary<at::logical_xor_out>, Types::kNative}},
      {"Where", {Where, Types::kAny}},
      {"BinaryCrossEntropyWithLogits", {BinaryCrossEntropyWithLogits}},
  };
  return kKernels;
}

std::span<const NamedKernel> BitwiseKernels() {
  static constexpr NamedKernel kKernels[] = {
      {"BitwiseAnd", {Binary<at::bitwise_and_out>, Types::kAny}},
      {"BitwiseOr", {Binary<at::bitwise_or_out>, Types::kAny}},
      {"BitwiseXor", {Binary<at::bitwise_xor_out>, Types::kAny}},
      {"BitwiseNot", {Not, Types::kAny}},
      {"ShiftLeft", {ShiftLeft, Types::kAny}},
      {"ShiftRight", {ShiftRight, Types::kAny}},
  };
  return kKernels;
}

}  // namespace onnxtrain::aten
