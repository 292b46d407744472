// Elementwise operators of one input.
#include <cmath>
#include <limits>

#include <ATen/ops/abs.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/acosh.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/asinh.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/atanh.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/cosh.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/isneginf.h>
#include <ATen/ops/isposinf.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/round.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sinh.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/threshold.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "backends/torch/kernel.h"

namespace onnxtrain::aten {
namespace {

using UnaryOut = at::Tensor& (*)(at::Tensor& out, const at::Tensor& x);

template <UnaryOut F>
Run Unary(const Args& a) {
  return [x = a.in[0], y = a.out[0]]() mutable { F(y, x); };
}

// Avoids ATen's kernel for float64, because its GPU version divides by a float32.
Run HardSwish(const Args& a) {
  if (a.in[0].scalar_type() != at::kDouble) return Unary<at::hardswish_out>(a);
  return [x = a.in[0], y = a.out[0]] { y.copy_((x + 3).clamp_(0, 6).mul_(x).div_(6)); };
}

Run Copy(const Args& a) {
  return [x = a.in[0], y = a.out[0]] { y.copy_(x); };
}

// Propagates NaNs; ATen's sign of NaN is 0.
Run Sign(const Args& a) {
  if (!a.in[0].is_floating_point()) return Unary<at::sign_out>(a);
  return [x = a.in[0], y = a.out[0]] { y.copy_(at::where(at::isnan(x), x, at::sign(x))); };
}

Run Relu(const Args& a) {
  return [x = a.in[0], y = a.out[0]]() mutable { at::clamp_min_out(y, x, 0); };
}

// Passes a threshold of 40, above which ATen returns x; this is exact even in float64.
Run Softplus(const Args& a) {
  return [x = a.in[0], y = a.out[0]]() mutable { at::softplus_out(y, x, 1, 40); };
}

Run Softsign(const Args& a) {
  return [x = a.in[0], y = a.out[0]] { y.copy_(x / (at::abs(x).add_(1))); };
}

Run LeakyRelu(const Args& a) {
  const double alpha = a.attrs().Float("alpha");
  return [=, x = a.in[0], y = a.out[0]]() mutable { at::leaky_relu_out(y, x, alpha); };
}

// Computes gamma * (x > 0 ? x : alpha * (exp(x * rate) - 1)).
Run EluLike(const Args& a, double alpha, double gamma, double rate) {
  return [=, x = a.in[0], y = a.out[0]]() mutable { at::elu_out(y, x, alpha, gamma, rate); };
}

Run Elu(const Args& a) { return EluLike(a, a.attrs().Float("alpha"), 1, 1); }
Run Celu(const Args& a) { return EluLike(a, a.attrs().Float("alpha"), 1, 1 / a.attrs().Float("alpha")); }
Run Selu(const Args& a) { return EluLike(a, a.attrs().Float("alpha"), a.attrs().Float("gamma"), 1); }

Run ThresholdedRelu(const Args& a) {
  const double alpha = a.attrs().Float("alpha");
  return [=, x = a.in[0], y = a.out[0]]() mutable { at::threshold_out(y, x, alpha, 0); };
}

Run HardSigmoid(const Args& a) {
  const double alpha = a.attrs().Float("alpha"), beta = a.attrs().Float("beta");
  return [=, x = a.in[0], y = a.out[0]]() mutable { at::clamp_out(y, (x * alpha).add_(beta), 0, 1); };
}

// Computes x + bias for x < -lambd, x - bias for x > lambd, and 0 between.
Run Shrink(const Args& a) {
  const double lambd = a.attrs().Float("lambd"), bias = a.attrs().Float("bias");
  return [=, x = a.in[0], y = a.out[0], zero = at::zeros({}, a.in[0].options())] {
    y.copy_(at::where(x.lt(-lambd), x + bias, at::where(x.gt(lambd), x - bias, zero)));
  };
}

// Omits infinite bounds, which integers cannot represent.
Run Clip(const Args& a) {
  const double low = a.attrs().Float("min"), high = a.attrs().Float("max");
  const bool has_low = !std::isinf(low) || low > 0, has_high = !std::isinf(high) || high < 0;
  if (!has_low && !has_high) return Copy(a);
  if (!has_high) return [=, x = a.in[0], y = a.out[0]]() mutable { at::clamp_min_out(y, x, low); };
  if (!has_low) return [=, x = a.in[0], y = a.out[0]]() mutable { at::clamp_max_out(y, x, high); };
  return [=, x = a.in[0], y = a.out[0]]() mutable { at::clamp_out(y, x, low, high); };
}

Run Gelu(const Args& a) {
  return [x = a.in[0], y = a.out[0], approximate = a.attrs().String("approximate")]() mutable {
    at::gelu_out(y, x, approximate);
  };
}

Run GeluGrad(const Args& a) {
  return [dy = a.in[0], x = a.in[1], dx = a.out[0], approximate = a.attrs().String("approximate")]() mutable {
    at::gelu_backward_out(dx, dy, x, approximate);
  };
}

Run IsNan(const Args& a) {
  return [x = a.in[0], y = a.out[0]] { y.copy_(at::isnan(x)); };
}

Run IsInf(const Args& a) {
  const bool negative = a.attrs().Int("detect_negative") != 0, positive = a.attrs().Int("detect_positive") != 0;
  if (negative && positive) return [x = a.in[0], y = a.out[0]] { y.copy_(at::isinf(x)); };
  if (negative) return Unary<at::isneginf_out>(a);
  if (positive) return Unary<at::isposinf_out>(a);
  return [y = a.out[0]] { y.zero_(); };
}

}  // namespace

std::span<const NamedKernel> UnaryKernels() {
  static constexpr NamedKernel kKernels[] = {
      {"Neg", {Unary<at::neg_out>, Types::kNumber}},
      {"Abs", {Unary<at::abs_out>, Types::kNumber}},
      {"Sign", {Sign, Types::kNumber}},
      {"Exp", {Unary<at::exp_out>}},
      {"Log", {Unary<at::log_out>}},
      {"Log1p", {Unary<at::log1p_out>}},
      {"Expm1", {Unary<at::expm1_out>}},
      {"Sqrt", {Unary<at::sqrt_out>}},
      {"Rsqrt", {Unary<at::rsqrt_out>}},
      {"Reciprocal", {Unary<at::reciprocal_out>}},
      {"Sin", {Unary<at::sin_out>}},
      {"Cos", {Unary<at::cos_out>}},
      {"Tan", {Unary<at::tan_out>}},
      {"Asin", {Unary<at::asin_out>}},
      {"Acos", {Unary<at::acos_out>}},
      {"Atan", {Unary<at::atan_out>}},
      {"Sinh", {Unary<at::sinh_out>}},
      {"Cosh", {Unary<at::cosh_out>}},
      {"Asinh", {Unary<at::asinh_out>}},
      {"Acosh", {Unary<at::acosh_out>}},
      {"Atanh", {Unary<at::atanh_out>}},
      {"Tanh", {Unary<at::tanh_out>}},
      {"Sigmoid", {Unary<at::sigmoid_out>}},
      {"Relu", {Relu, Types::kNumber}},
      {"Softplus", {Softplus}},
      {"Softsign", {Softsign}},
      {"HardSwish", {HardSwish}},
      {"Mish", {Unary<at::mish_out>}},
      {"Erf", {Unary<at::erf_out>}},
      {"Floor", {Unary<at::floor_out>}},
      {"Ceil", {Unary<at::ceil_out>}},
      {"Round", {Unary<at::round_out>}},
      {"Not", {Unary<at::logical_not_out>, Types::kNative}},
      {"LeakyRelu", {LeakyRelu}},
      {"Elu", {Elu}},
      {"Celu", {Celu}},
      {"Selu", {Selu}},
      {"ThresholdedRelu", {ThresholdedRelu}},
      {"HardSigmoid", {HardSigmoid}},
      {"Shrink", {Shrink}},
      {"Clip", {Clip, Types::kNumber}},
      {"Gelu", {Gelu}},
      {"GeluGrad", {GeluGrad}},
      {"IsNaN", {IsNan, Types::kNative}},
      {"IsInf", {IsInf, Types::kNative}},
  };
  return kKernels;
}

}  // namespace onnxtrain::aten
