#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/celu.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/threshold.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "reference.h"

namespace onnxtrain::cases {
namespace {

template <typename F>
Reference Of(F f) {
  return [f](const Operands& a) { return TensorVector{f(a[0])}; };
}
template <typename F>
Reference Of2(F f) {
  return [f](const Operands& a) { return TensorVector{f(a[0], a[1])}; };
}
// With attributes.
template <typename F>
Reference With(F f) {
  return [f](const Operands& a) { return TensorVector{f(a[0], a.attrs())}; };
}

using T = const at::Tensor&;
using A = const Attrs&;

}  // namespace

Reference FindByName(std::string_view op) {
  std::string name = "aten::";
  std::ranges::transform(op, std::back_inserter(name), [](unsigned char c) { return std::tolower(c); });
  const auto found = c10::Dispatcher::singleton().findSchema(c10::OperatorName(name, ""));
  if (!found.has_value()) return nullptr;
  return [f = found->typed<at::Tensor(const at::Tensor&)>()](const Operands& a) { return TensorVector{f.call(a[0])}; };
}

References ElementwiseReferences() {
  return {
      {"Softplus", Of([](T x) { return at::softplus(x, 1, 100); })},
      {"Softsign", Of([](T x) { return x / (x.abs() + 1); })},
      {"LeakyRelu", With([](T x, A a) { return at::leaky_relu(x, a.Float("alpha", 0.01)); })},
      {"Elu", With([](T x, A a) { return at::elu(x, a.Float("alpha", 1)); })},
      {"Celu", With([](T x, A a) { return at::celu(x, a.Float("alpha", 1)); })},
      {"Selu", With([](T x, A a) {
         const double alpha = a.Float("alpha", 1.6732632423543772), gamma = a.Float("gamma", 1.0507009873554805);
         return at::where(x.gt(0), x, x.expm1() * alpha) * gamma;
       })},
      {"ThresholdedRelu", With([](T x, A a) { return at::threshold(x, a.Float("alpha", 1), 0); })},
      {"HardSigmoid", With([](T x, A a) { return (x * a.Float("alpha", 0.2) + a.Float("beta", 0.5)).clamp(0, 1); })},
      {"Shrink", With([](T x, A a) {
         const double lambd = a.Float("lambd", 0.5), bias = a.Float("bias", 0);
         return at::where(x.lt(-lambd), x + bias, at::where(x.gt(lambd), x - bias, at::zeros_like(x)));
       })},
      {"Clip", With([](T x, A a) {
         at::Tensor y = x;
         if (a.Has("min")) y = y.clamp_min(a.Float("min"));
         if (a.Has("max")) y = y.clamp_max(a.Float("max"));
         return y;
       })},
      {"Gelu", With([](T x, A a) { return at::gelu(x, a.String("approximate")); })},
      {"GeluGrad",
       [](const Operands& a) { return TensorVector{at::gelu_backward(a[0], a[1], a.attrs().String("approximate"))}; }},
      {"Cast", With([](T x, A a) { return x.to(a.String("to") == "f32" ? at::kDouble : at::kLong); })},
      {"StraightThrough", [](const Operands& a) { return TensorVector{a[0].detach() + (a[1] - a[1].detach())}; }},
      {"AllReduce", With([](T x, A) { return x.clone(); })},  // of one rank
      {"SumGradient", With([](T x, A) { return x.clone(); })},
      {"AllGather", With([](T x, A) { return x.clone(); })},
      {"AwaitGather", With([](T x, A) { return x.clone(); })},
      {"ReduceScatter", With([](T x, A) { return x.clone(); })},
      {"Add", Of2([](T a, T b) { return a + b; })},
      {"Sub", Of2([](T a, T b) { return a - b; })},
      {"Mul", Of2([](T a, T b) { return a * b; })},
      {"Div", Of2([](T a, T b) { return a / b; })},
      {"Pow", Of2([](T a, T b) { return a.pow(b); })},
      {"Min", Of2([](T a, T b) { return at::minimum(a, b); })},
      {"Max", Of2([](T a, T b) { return at::maximum(a, b); })},
      {"Mod", Of2([](T a, T b) { return a.fmod(b); })},
      {"PRelu", Of2([](T x, T slope) { return at::where(x.lt(0), x * slope, x); })},
      {"Where", [](const Operands& a) { return TensorVector{at::where(a[0], a[1], a[2])}; }},
  };
}

}  // namespace onnxtrain::cases
