// Casts between all element types. Floats outside an integer's range saturate and NaN becomes 0; integers narrower than
// a byte keep the lowest bits.
#include <array>
#include <limits>

#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/typed.h"
#include "frontend/base/small_float.h"
#include "frontend/graph/small_types.h"
#include "frontend/graph/type.h"

namespace onnxtrain::cpu {
namespace {

struct Half {
  uint16_t bits;
};
struct Bool {
  uint8_t value;
};

template <typename T>
auto Load(T x) {
  return x;
}
float Load(Half x) { return HalfToFloat(x.bits); }
float Load(BFloat16 x) { return BFloat16ToFloat(x.bits); }
uint8_t Load(Bool x) { return x.value; }

template <typename To, typename From>
To Convert(From x) {
  if constexpr (std::is_same_v<To, Bool>) {
    return {static_cast<uint8_t>(x != From(0))};
  } else if constexpr (std::is_same_v<To, Half>) {
    return {FloatToHalf(static_cast<float>(x))};
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    return {FloatToBFloat16(static_cast<float>(x))};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if (x != x) return 0;
    // The limits may round to floats just outside the range; the comparisons leave only values inside.
    if (x >= static_cast<From>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    if (x <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

template <typename F>
auto ForAny(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32:
      return f(float());
    case DType::kFloat64:
      return f(double());
    case DType::kFloat16:
      return f(Half());
    case DType::kBFloat16:
      return f(BFloat16());
    case DType::kBool:
      return f(Bool());
    default:
      return ForInteger(dtype, f);
  }
}

template <typename From, typename To>
Kernel CastKernel(int64_t n) {
  return {.run = [n](const Args& args) {
    const From* x = args.in<From>();
    To* y = args.out<To>();
    Parallel(n, 2, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = Convert<To>(Load(x[i]));
    });
  }};
}

// Casts from one-byte storage types with a table of their values.
template <typename To>
Kernel DecodeKernel(int64_t n, DType from) {
  std::array<To, 256> table;
  for (int code = 0; code < 256; ++code) {
    const double value = SmallValue(from, static_cast<uint8_t>(code));
    // Integers that do not fit wrap around, as for the wider types.
    table[code] = IsSmallFloat(from) ? Convert<To>(value) : Convert<To>(static_cast<int64_t>(value));
  }
  return {.run = [n, table](const Args& args) {
    const uint8_t* x = args.in<uint8_t>();
    To* y = args.out<To>();
    Parallel(n, 2, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = table[x[i]];
    });
  }};
}

template <typename From, typename Encode>
Kernel EncodeKernel(int64_t n, Encode encode) {
  return {.run = [n, encode](const Args& args) {
    const From* x = args.in<From>();
    uint8_t* y = args.out<uint8_t>();
    Parallel(n, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = encode(Load(x[i]));
    });
  }};
}

absl::StatusOr<Kernel> EncodeFloats(const KernelContext& c, const SmallFloatEncoding& encoding) {
  return ForAny(c.in().dtype, [&]<typename From>(From) {
    return EncodeKernel<From>(c.out().elements(),
                              [&encoding](auto x) { return encoding.Encode(static_cast<double>(x)); });
  });
}

absl::StatusOr<Kernel> PrepareToSmall(const KernelContext& c) {
  const DType to = c.out().dtype;
  if (IsSmallFloat(to)) return EncodeFloats(c, GetEncoding(ToSmallFloat(to)));
  return ForAny(c.in().dtype, [&]<typename From>(From) {
    return EncodeKernel<From>(c.out().elements(),
                              [to](auto x) { return static_cast<uint8_t>(WrapSmallInt(to, Convert<int64_t>(x))); });
  });
}

Kernel SmallToSmall(int64_t n, DType from, DType to) {
  std::array<uint8_t, 256> table;
  for (int code = 0; code < 256; ++code) {
    table[code] = HostTensor::Scalar(to, SmallValue(from, static_cast<uint8_t>(code))).data<uint8_t>()[0];
  }
  return {.run = [n, table](const Args& args) {
    const uint8_t* x = args.in<uint8_t>();
    uint8_t* y = args.out<uint8_t>();
    for (int64_t i = 0; i < n; ++i) y[i] = table[x[i]];
  }};
}

absl::StatusOr<Kernel> PrepareEncode(const KernelContext& c) { return EncodeFloats(c, GetEncoding(c.attrs())); }

absl::StatusOr<Kernel> PrepareCast(const KernelContext& c) {
  const int64_t n = c.out().elements();
  const DType from = c.in().dtype, to = c.out().dtype;
  if (IsStorage(from) && IsStorage(to)) return SmallToSmall(n, from, to);
  if (IsStorage(to)) return PrepareToSmall(c);
  if (IsStorage(from)) return ForAny(to, [&]<typename To>(To) { return DecodeKernel<To>(n, from); });
  if (const UnaryEntry* vectors = FindUnary(GetEntry(c.graph, c.node).name)) return UnaryKernel(c, vectors->span);
  return ForAny(c.in().dtype, [&]<typename From>(From) {
    return ForAny(c.out().dtype, [&]<typename To>(To) { return CastKernel<From, To>(n); });
  });
}

}  // namespace

std::span<const KernelRow> CastKernels() {
  static constexpr KernelRow kRows[] = {{"Cast", PrepareCast, kAnyType}, {"EncodeFloat", PrepareEncode, kAnyType}};
  return kRows;
}

}  // namespace onnxtrain::cpu
