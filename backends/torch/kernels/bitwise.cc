// Bits of integers. Unsigned ones are carried as signed ones of their width, which have the same bits.
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_not.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "backends/torch/kernels/binary.h"

namespace onnxtrain::aten {
namespace {

Run Not(const Args& a) {
  return [x = a.in[0], y = a.out[0]]() mutable { at::bitwise_not_out(y, x); };
}

// Without the bits that widening a carried number to 64 bits repeats its sign in.
at::Tensor Wide(const at::Tensor& x) {
  const at::Tensor wide = x.to(at::kLong);
  return x.element_size() == 8 ? wide : at::bitwise_and(wide, (int64_t{1} << (8 * x.element_size())) - 1);
}

// All shifts from 64 on (a carried u64 from 2^63 on is negative) give 0.
at::Tensor Shifted(const at::Tensor& shifted, const at::Tensor& by) {
  return at::where(by.lt(0).logical_or_(by.gt(63)), at::zeros_like(shifted), shifted);
}

Run ShiftLeft(const Args& a) {
  return [x = a.in[0], z = a.in[1], y = a.out[0]] {
    const at::Tensor by = Wide(z);
    y.copy_(Shifted(at::bitwise_left_shift(Wide(x), by.clamp(0, 63)), by));
  };
}

// The first place alone shifts in zeros: with it gone, the sign is 0 and the rest is an arithmetic shift.
Run ShiftRight(const Args& a) {
  return [x = a.in[0], z = a.in[1], y = a.out[0]] {
    const at::Tensor by = Wide(z), wide = Wide(x);
    const at::Tensor once = at::bitwise_and(at::bitwise_right_shift(wide, 1), INT64_MAX);
    const at::Tensor rest = at::bitwise_right_shift(once, (by - 1).clamp(0, 62));
    y.copy_(Shifted(at::where(by.eq(0), wide, rest), by));
  };
}

}  // namespace

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
