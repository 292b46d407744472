// Converts and normalizes the values of columns into batch tensors.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/base/small_float.h"
#include "frontend/data/load/loader.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/graph/type.h"

namespace onnxtrain {

// Element types as C++ types: calls a generic function with the type that stores the elements.

// Storage types that share a C++ type.
struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
struct Bool {
  uint8_t value;
};

template <typename T>
using Tag = std::type_identity<T>;

template <typename F>
decltype(auto) Visit(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat32:
      return f(Tag<float>());
    case DType::kFloat64:
      return f(Tag<double>());
    case DType::kFloat16:
      return f(Tag<Half>());
    case DType::kBFloat16:
      return f(Tag<BFloat16>());
    case DType::kInt8:
      return f(Tag<int8_t>());
    case DType::kInt16:
      return f(Tag<int16_t>());
    case DType::kInt32:
      return f(Tag<int32_t>());
    case DType::kInt64:
      return f(Tag<int64_t>());
    case DType::kUInt8:
      return f(Tag<uint8_t>());
    case DType::kUInt16:
      return f(Tag<uint16_t>());
    case DType::kUInt32:
      return f(Tag<uint32_t>());
    case DType::kUInt64:
      return f(Tag<uint64_t>());
    case DType::kBool:
      return f(Tag<Bool>());
    default:  // storage types, which ConvertValues rejects
      break;
  }
  std::abort();
}

// Converts a stored value for arithmetic.
inline float ReadScalar(Half h) { return HalfToFloat(h.bits); }
inline float ReadScalar(BFloat16 b) { return BFloat16ToFloat(b.bits); }
inline uint8_t ReadScalar(Bool b) { return b.value != 0; }
template <typename T>
T ReadScalar(T v) {
  return v;
}

// Converts `from.size() / DTypeSize(from_type)` values to elements 0, stride, 2·stride… of `to`, rounding to nearest
// even. Fails, naming the value, on a float that is not an integer in the range of an integer `to_type`.
absl::Status ConvertValues(DType from_type, std::span<const std::byte> from, DType to_type, std::byte* to,
                           int64_t stride);

// Returns the place of the first value that is not in `range` or, without one, of floats, not finite; -1: none. The
// values are aligned. Storage types are not checked.
int64_t FindInvalidValue(DType dtype, std::span<const std::byte> values, const std::optional<ValueRange>& range,
                         bool allow_nan);

// Computes y[j] = (x[j] · scale − mean[c]) / std[c] in double, where c = (j / inner) mod channels.
struct Normalization {
  double scale = 1;
  std::vector<double> mean, std;  // one per channel
  int64_t inner = 1;
};
// Normalizes the values of `from` into `to`, of a float type.
void NormalizeValues(const Normalization& normalization, DType from_type, std::span<const std::byte> from,
                     DType to_type, std::byte* to);

// Computes y = (x - shift[at]) / divisor[at] in double, where at = first + j·step for value j.
struct Standardize {
  std::span<const double> shift, divisor;
  int64_t first = 0, step = 0;
};
// Standardizes the values of `from` to elements 0, stride, 2·stride… of `to`, of a float type.
void StandardizeValues(const Standardize& standardize, DType from_type, std::span<const std::byte> from, DType to_type,
                       std::byte* to, int64_t stride);

// Writes the samples of one feed into a batch.
class FeedWriter {
 public:
  // Fails on an unknown or unusable column, a wrong number of values, a normalization with a wrong number of channels,
  // or a std of zero.
  static absl::StatusOr<FeedWriter> Create(const Dataset& data, const FeedSpec& spec);

  const Type& sample() const { return spec_.sample; }
  bool variable() const { return spec_.variable; }
  bool sized() const { return spec_.height_axis >= 0; }
  // The sample's type in batches whose pictures have these extents.
  Type PaddedSample(const PictureExtents& extents) const;
  Mixing mixing() const { return spec_.mixing; }
  // Writes sample i to `out`, spec.sample.bytes() bytes; of a variable feed, to any number of elements; of a sized one,
  // PaddedSample(data.Extents(i)).bytes(). The caller keeps `scratch` to allocate it only once.
  absl::Status Write(const Dataset& data, int64_t i, std::span<std::byte> out, std::vector<std::byte>* scratch,
                     const ReadPass& pass = {}) const;

 private:
  void NormalizePixels(const PictureExtents& extents, DType from_type, std::span<const std::byte> from,
                       std::byte* to) const;
  // Moves the pixels of a picture, which begin at out.data(), to their places in the padded sample; fills the rest.
  void Pad(const PictureExtents& extents, std::span<std::byte> out) const;
  int64_t FindInvalid(std::span<const std::byte> values) const;
  // Fails with row, column and value on a value that is not finite or not in FeedSpec::range.
  absl::Status Check(const Dataset& data, int64_t i, std::span<const std::byte> values) const;

  // Reads column `k` of the feed into its places of `out`.
  absl::Status WriteColumn(const Dataset& data, int64_t i, int64_t k, std::span<std::byte> out,
                           std::vector<std::byte>* scratch, const ReadPass& pass) const;

  // Writes 1 at the place of the class of sample i, and 0 elsewhere.
  absl::Status WriteShares(const Dataset& data, int64_t i, std::span<std::byte> out,
                           std::vector<std::byte>* scratch) const;

  FeedSpec spec_;
  std::vector<std::byte> padding_;  // one element
  bool normalizes_ = false;
  Normalization normalization_;
};

}  // namespace onnxtrain
