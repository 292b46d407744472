// Converts and normalizes the values of columns and writes them to batch tensors.
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

// Distinct C++ types for element types that are stored in an integer type.
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

// Converts a stored value to a type with arithmetic.
inline float ReadScalar(Half h) { return HalfToFloat(h.bits); }
inline float ReadScalar(BFloat16 b) { return BFloat16ToFloat(b.bits); }
inline uint8_t ReadScalar(Bool b) { return b.value != 0; }
template <typename T>
T ReadScalar(T v) {
  return v;
}

// Converts the values of `from` and writes them to elements 0, stride, 2·stride… of `to`, rounding to nearest even.
// Fails, naming the value, if a float is not an integer in the range of an integer `to_type`.
absl::Status ConvertValues(DType from_type, std::span<const std::byte> from, DType to_type, std::byte* to,
                           int64_t stride);

// Returns the index of the first value that is outside `range` or, without a range, is a float that is not finite; -1
// if there is none. Values must be aligned. Storage types (IsStorage) are not checked.
int64_t FindInvalidValue(DType dtype, std::span<const std::byte> values, const std::optional<ValueRange>& range,
                         bool allow_nan);

// Parameters of y[j] = (x[j] · scale − mean[c]) / std[c], computed in double, where c = (j / inner) mod channels.
struct Normalization {
  double scale = 1;
  std::vector<double> mean, std;  // one per channel
  int64_t inner = 1;
};
// Normalizes the values of `from` into `to`, which has a float type.
void NormalizeValues(const Normalization& normalization, DType from_type, std::span<const std::byte> from,
                     DType to_type, std::byte* to);

// Parameters of y = (x - shift[k]) / divisor[k], computed in double, where k = first + j·step for value j.
struct Standardize {
  std::span<const double> shift, divisor;
  int64_t first = 0, step = 0;
};
// Standardizes the values of `from` and writes them to elements 0, stride, 2·stride… of `to`, which has a float type.
void StandardizeValues(const Standardize& standardize, DType from_type, std::span<const std::byte> from, DType to_type,
                       std::byte* to, int64_t stride);

// Writes the samples of one feed into a batch.
class FeedWriter {
 public:
  // Fails on an unknown or unusable column, a wrong number of values, a normalization with a wrong number of channels,
  // and a std of zero.
  static absl::StatusOr<FeedWriter> Create(const Dataset& data, const FeedSpec& spec);

  const Type& sample() const { return spec_.sample; }
  bool variable() const { return spec_.variable; }
  int length_axis() const { return spec_.length_axis; }
  bool sized() const { return spec_.height_axis >= 0; }
  // Returns the type of a sample in batches whose pictures have these extents.
  Type PaddedSample(const PictureExtents& extents) const;
  Mixing mixing() const { return spec_.mixing; }
  // Writes sample i to `out`, which has spec.sample.bytes() bytes; for a variable feed, any number of elements; for a
  // sized() feed, PaddedSample(data.Extents(i)).bytes(). The caller keeps `scratch`, so that it is allocated once.
  absl::Status Write(const Dataset& data, int64_t i, std::span<std::byte> out, std::vector<std::byte>* scratch,
                     const ReadPass& pass = {}) const;

 private:
  void NormalizePixels(const PictureExtents& extents, DType from_type, std::span<const std::byte> from,
                       std::byte* to) const;
  // Moves the contiguous pixels at out.data() to their positions in the padded sample and fills the rest with padding.
  void Pad(const PictureExtents& extents, std::span<std::byte> out) const;
  int64_t FindInvalid(std::span<const std::byte> values) const;
  // Fails, with row, column and value, if a value is not finite or outside FeedSpec::range.
  absl::Status Check(const Dataset& data, int64_t i, std::span<const std::byte> values) const;

  // Reads column `k` of the feed into its elements of `out`.
  absl::Status WriteColumn(const Dataset& data, int64_t i, int64_t k, std::span<std::byte> out,
                           std::vector<std::byte>* scratch, const ReadPass& pass) const;

  // Writes the class of sample i as a one-hot vector.
  absl::Status WriteShares(const Dataset& data, int64_t i, std::span<std::byte> out,
                           std::vector<std::byte>* scratch) const;

  FeedSpec spec_;
  std::vector<std::byte> padding_;  // bytes of one padding element
  bool normalizes_ = false;
  Normalization normalization_;
};

}  // namespace onnxtrain
