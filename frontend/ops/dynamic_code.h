// The 8-bit dynamic code of optimizer states (Dettmers et al., 8-bit Optimizers via Block-wise Quantization,
// arXiv:2110.02861): numbers of a block are divided by the largest magnitude of the block and rounded to the nearest of
// 256 values, which are dense near zero: 7 decades of 10, each of which has twice the values of the smaller one.
//
// The rows QuantizeDynamic and DequantizeDynamic use it; a state is two tensors, codes and scales.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "frontend/ops/builder.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

inline constexpr int64_t kDynamicBlock = 256;  // consecutive elements that share a scale

// Returns the number of scales of a tensor.
inline int64_t DynamicBlocks(int64_t elements) { return (elements + kDynamicBlock - 1) / kDynamicBlock; }

struct DynamicCode {
  std::array<float, 256> values{};  // by code, ascending, in [-1, 1], or in [0, 1] if unsigned
  int zero = 0;                     // the code of 0
  // thresholds[k]: larger magnitudes have at least the code zero + k + 1; they are midpoints, so that ties are rounded
  // to the smaller magnitude. The first one of the unsigned code is 0: a second moment that is not 0 never becomes 0,
  // which would be a divisor.
  std::vector<float> thresholds;

  bool is_signed() const { return zero > 0; }
  // Returns the code of a number divided by the scale of its block; that of 0 for NaN.
  template <typename T>
  uint8_t Encode(T x) const;
};

const DynamicCode& GetDynamicCode(bool is_signed);

// Blocks with smaller magnitudes are divided by this number instead of their scale, whose inverse may be infinite.
inline constexpr float kMinDynamicScale = 1.17549435e-38f;

struct DynamicTensor {
  Val codes;   // u8, of the tensor's shape
  Val scales;  // [DynamicBlocks], of the tensor's type
};
DynamicTensor QuantizeDynamic(Val x, bool is_signed);
Val DequantizeDynamic(const DynamicTensor& x, bool is_signed);

// Returns the rows of both operators, for the family QuantizeOps.
std::vector<OpRow> MakeDynamicCodeRows();

template <typename T>
uint8_t DynamicCode::Encode(T x) const {
  const T magnitude = x < 0 ? (is_signed() ? -x : T(0)) : x;
  int k = 0;
  for (int step = 128; step > 0; step /= 2) {
    const bool above = k + step <= static_cast<int>(thresholds.size()) && magnitude > thresholds[k + step - 1];
    k += above ? step : 0;
  }
  return static_cast<uint8_t>(x < 0 && is_signed() ? std::max(0, zero - k) : zero + k);
}

}  // namespace onnxtrain
