// Quantizes optimizer states to the 8-bit dynamic code, and back.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "backends/cpu/kernels/dequantize.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/base/log.h"
#include "frontend/ops/dynamic_code.h"

namespace onnxtrain::cpu {

// The tables that the vector functions read.
struct DynamicTables {
  const float* values;      // by code
  const float* thresholds;  // ascending, then ∞
  const int32_t* below;     // by bucket: the number of thresholds below it
  int32_t first_bucket = 0, buckets = 0;
  int32_t zero = 0;  // the code of 0
};

struct DynamicSimd {
  void (*dequantize)(const DynamicTables& tables, const uint8_t* codes, float scale, int64_t n, float* y);
  float (*max_magnitude)(const float* x, int64_t n);
  void (*quantize)(const DynamicTables& tables, const float* x, float divisor, int64_t n, uint8_t* codes);
};

}  // namespace onnxtrain::cpu

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/dynamic_code-inl.h"
#include "hwy/foreach_target.h"

#include "backends/cpu/kernels/dynamic_code-inl.h"

namespace onnxtrain::cpu {

HWY_EXPORT(DynamicTable);
namespace {

// A bucket holds the magnitudes in [0, 1] whose upper 16 bits are equal: sign, exponent and 7 bits of the mantissa,
// finer than the code. Bucket 0 also holds all smaller magnitudes.
class Buckets {
 public:
  explicit Buckets(const DynamicCode& code) {
    thresholds_.fill(std::numeric_limits<float>::infinity());
    std::copy(code.thresholds.begin(), code.thresholds.end(), thresholds_.begin());
    const int32_t first = Key(code.thresholds[1]) - 1, last = Key(1.0f);
    for (int32_t key = first; key <= last; ++key) {
      const float least = key == first ? 0.0f : std::bit_cast<float>(key << 16);
      const float next = std::bit_cast<float>((key + 1) << 16);
      const auto begin = thresholds_.begin();
      below_.push_back(static_cast<int32_t>(std::lower_bound(begin, thresholds_.end(), least) - begin));
      CHECK(thresholds_[below_.back() + 1] >= next) << "a bucket has two thresholds";
    }
    tables_ = {code.values.data(), thresholds_.data(), below_.data(), first, static_cast<int32_t>(below_.size()),
               code.zero};
  }

  const DynamicTables& tables() const { return tables_; }

 private:
  static int32_t Key(float x) { return std::bit_cast<int32_t>(x) >> 16; }

  std::array<float, 257> thresholds_{};
  std::vector<int32_t> below_;
  DynamicTables tables_{};
};

const Buckets& GetBuckets(bool is_signed) {
  static const Buckets unsigned_buckets(GetDynamicCode(false)), signed_buckets(GetDynamicCode(true));
  return is_signed ? signed_buckets : unsigned_buckets;
}

constexpr int64_t kCost = 8;  // additions per element

// Calls f(first, n) for ranges of whole blocks that cover a tensor, in several threads.
template <typename F>
void ForBlocks(int64_t elements, F f) {
  Parallel(DynamicBlocks(elements), kDynamicBlock * kCost, [&](int64_t begin, int64_t end) {
    f(begin * kDynamicBlock, std::min(end * kDynamicBlock, elements) - begin * kDynamicBlock);
  });
}

void Encode(const DynamicCode& code, const double* x, int64_t n, uint8_t* codes, double* scales) {
  for (int64_t begin = 0; begin < n; begin += kDynamicBlock) {
    const int64_t end = std::min(n, begin + kDynamicBlock);
    double most = 0;
    for (int64_t i = begin; i < end; ++i) most = std::max(most, std::fabs(x[i]));
    const double divisor = std::max(most, double{kMinDynamicScale});
    for (int64_t i = begin; i < end; ++i) codes[i] = code.Encode(x[i] / divisor);
    scales[begin / kDynamicBlock] = most;
  }
}

}  // namespace

DynamicCoder::DynamicCoder(bool is_signed)
    : tables_(GetBuckets(is_signed).tables()), simd_(HWY_DYNAMIC_DISPATCH(DynamicTable)()) {}

void DynamicCoder::Decode(const uint8_t* codes, const float* scales, int64_t n, float* y) const {
  for (int64_t at = 0; at < n; at += kDynamicBlock)
    simd_.dequantize(tables_, codes + at, scales[at / kDynamicBlock], std::min(kDynamicBlock, n - at), y + at);
}

void DynamicCoder::Encode(const float* x, int64_t n, uint8_t* codes, float* scales) const {
  for (int64_t at = 0; at < n; at += kDynamicBlock) {
    const int64_t count = std::min(kDynamicBlock, n - at);
    const float most = simd_.max_magnitude(x + at, count);
    simd_.quantize(tables_, x + at, std::max(most, kMinDynamicScale), count, codes + at);
    scales[at / kDynamicBlock] = most;
  }
}

absl::StatusOr<Kernel> PrepareQuantizeDynamic(const KernelContext& c) {
  const int64_t elements = c.in().elements();
  const bool is_signed = c.attrs().Int("signed") != 0, wide = c.in().dtype == DType::kFloat64;
  return Kernel{.run = [=, coder = DynamicCoder(is_signed)](const Args& args) {
    ForBlocks(elements, [&](int64_t first, int64_t n) {
      uint8_t* codes = args.out<uint8_t>() + first;
      const int64_t block = first / kDynamicBlock;
      if (wide)
        return Encode(GetDynamicCode(is_signed), args.in<double>() + first, n, codes, args.out<double>(1) + block);
      coder.Encode(args.in() + first, n, codes, args.out(1) + block);
    });
  }};
}

absl::StatusOr<Kernel> PrepareDequantizeDynamic(const KernelContext& c) {
  const int64_t elements = c.out().elements();
  const bool is_signed = c.attrs().Int("signed") != 0, wide = c.out().dtype == DType::kFloat64;
  return Kernel{.run = [=, coder = DynamicCoder(is_signed)](const Args& args) {
    ForBlocks(elements, [&](int64_t first, int64_t n) {
      const uint8_t* codes = args.in<uint8_t>() + first;
      if (!wide) return coder.Decode(codes, args.in(1) + first / kDynamicBlock, n, args.out() + first);
      const auto& values = GetDynamicCode(is_signed).values;
      for (int64_t i = 0; i < n; ++i)
        args.out<double>()[first + i] = values[codes[i]] * args.in<double>(1)[(first + i) / kDynamicBlock];
    });
  }};
}

}  // namespace onnxtrain::cpu
