// Casts between all element types, including those that ATen lacks: wide unsigned integers and the storage types. These
// are decoded to a type that represents all their values, and encoded from one.
#include <ATen/ops/bucketize.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/signbit.h>
#include <ATen/ops/where.h>

#include "backends/torch/compat.h"
#include "backends/torch/kernel.h"
#include "backends/torch/multi_tensor/multi_tensor.h"
#include "backends/torch/tensor.h"
#include "frontend/graph/small_types.h"
#include "frontend/graph/type.h"

#if ONNXTRAIN_TORCH2
#include <ATen/ops/_foreach_copy.h>
#endif

namespace onnxtrain::aten {
namespace {

constexpr double kTwo63 = 9223372036854775808.0;

bool IsNative(DType dtype) { return !IsStorage(dtype) && !IsStoredAsSigned(dtype); }

using Map = std::function<at::Tensor(const at::Tensor&)>;

// Converts a u64 stored as i64, which is negative from 2^63 on, to float64.
at::Tensor WideToDouble(const at::Tensor& x) {
  const at::Tensor y = x.to(at::kDouble);
  return y + x.lt(0).to(at::kDouble) * (2 * kTwo63);
}

// Returns a function that decodes `from` to a type that ATen computes with.
Map Decoder(DType from, DType to, at::Device device) {
  if (IsNative(from)) return [](const at::Tensor& x) { return x; };
  if (IsStorage(from)) {
    HostTensor values({DType::kFloat32, {256}});
    for (int code = 0; code < 256; ++code) values.Set(code, SmallValue(from, static_cast<uint8_t>(code)));
    return [table = Upload(values, device)](const at::Tensor& x) {
      return table.index_select(0, x.reshape({-1}).to(at::kLong).bitwise_and(0xff)).view(x.sizes());
    };
  }
  if (from == DType::kUInt64) {
    if (IsFloat(to) || IsSmallFloat(to)) return WideToDouble;
    return [](const at::Tensor& x) { return x; };
  }
  const int64_t mask = from == DType::kUInt16 ? 0xffff : 0xffffffff;
  return [mask](const at::Tensor& x) { return x.to(at::kLong).bitwise_and(mask); };
}

at::Tensor Truncated(const at::Tensor& x) { return x.to(at::kLong); }

// Converts floats to u64 stored as i64: values of 2^63 and more wrap to negative numbers.
at::Tensor DoubleToWide(const at::Tensor& x) {
  const at::Tensor wide = x.to(at::kDouble);
  return at::where(wide.ge(kTwo63), (wide - 2 * kTwo63).to(at::kLong), wide.to(at::kLong));
}

Map SmallEncoder(const SmallFloatEncoding& encoding, at::Device device) {
  const auto count = static_cast<int64_t>(encoding.boundaries.size());
  const at::Tensor boundaries =
      Upload(HostTensor::FromDoubles({DType::kFloat64, {count}}, encoding.boundaries), device);
  const at::Tensor nan = Upload(HostTensor::Scalar(DType::kInt64, encoding.nan), device);
  return [boundaries, nan, &encoding](const at::Tensor& x) {
    const at::Tensor wide = x.to(at::kDouble), magnitude = wide.abs();
    const at::Tensor code = at::bucketize(magnitude, boundaries, false, true);
    at::Tensor negative = at::signbit(wide), invalid = at::isnan(wide).logical_or_(magnitude.lt(encoding.lowest));
    if (encoding.sign == 0) {
      return at::where(invalid.logical_or_(wide.lt(0)), nan, code);
    }
    if (!encoding.negative_zero) negative = negative.logical_and(code.gt(0));
    return at::where(invalid, nan, code.bitwise_or(negative.to(at::kLong) * encoding.sign));
  };
}

// Returns a function that wraps integers to a storage type: keeps the lowest bits and extends the sign.
Map SmallIntEncoder(DType to) {
  const int64_t sign = int64_t{1} << (StorageBits(to) - 1), flip = WrapSmallInt(to, sign) < 0 ? sign : 0;
  return [=](const at::Tensor& x) { return (x.to(at::kLong).bitwise_and(2 * sign - 1).bitwise_xor(flip)).sub_(flip); };
}

Map Encoder(DType from, DType to, at::Device device) {
  if (IsSmallFloat(to)) return SmallEncoder(GetEncoding(ToSmallFloat(to)), device);
  if (IsStorage(to)) return SmallIntEncoder(to);
  const bool fractions = IsFloat(from) || IsSmallFloat(from);
  if (to == DType::kUInt64 && fractions) return DoubleToWide;
  if (IsStoredAsSigned(to) && fractions) return Truncated;  // ATen then narrows the integers to their lowest bits
  return [](const at::Tensor& x) { return x; };
}

Run Convert(const Args& a, Map decode, Map encode) {
  return [decode = std::move(decode), encode = std::move(encode), x = a.in[0], y = a.out[0]] {
    y.copy_(encode(decode(x)));
  };
}

Run Cast(const Args& a) {
  const DType from = a.graph.type(a.node.inputs[0]).dtype, to = a.graph.type(a.node.outputs[0]).dtype;
  if (IsNative(from) && IsNative(to)) return [x = a.in[0], y = a.out[0]] { y.copy_(x); };
  return Convert(a, Decoder(from, to, a.device), Encoder(from, to, a.device));
}

Run EncodeFloat(const Args& a) {
  return Convert(
      a, [](const at::Tensor& x) { return x; }, SmallEncoder(GetEncoding(a.attrs()), a.device));
}

Run CastTogether(const Args& a) {
  std::vector<at::Tensor> from, to;
  for (size_t i = 0; i < a.out.size(); ++i) {
    if (!a.out[i].defined()) continue;
    from.push_back(a.in[i]);
    to.push_back(a.out[i]);
  }
#if ONNXTRAIN_TORCH2
  return [=] { at::_foreach_copy_(to, from); };
#else
  return [=] {
    for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
  };
#endif
}

}  // namespace

std::span<const NamedKernel> CastKernels() {
  static constexpr NamedKernel kKernels[] = {{kCastTogether, {CastTogether, Types::kAny}},
                                             {"Cast", {Cast, Types::kAny}},
                                             {"EncodeFloat", {EncodeFloat, Types::kAny}}};
  return kKernels;
}

}  // namespace onnxtrain::aten
