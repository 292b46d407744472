// From a column's values to a batch tensor's: element type, normalization, place.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/dataset.h"
#include "frontend/data/loader.h"

namespace onnxtrain {

// Converts `from.size() / SizeOf(from_type)` values to elements 0, stride, 2·stride… of `to`. Floats become integers
// only if they are integers in range; otherwise fails naming the value. Rounds to nearest even.
absl::Status ConvertValues(DType from_type, std::span<const std::byte> from, DType to_type, std::byte* to,
                           int64_t stride);

// y[j] = (x[j] · scale − mean[c]) / std[c] in double, where c = (j / inner) mod channels. `to_type` is a float type.
struct Normalization {
  double scale = 1;
  std::vector<double> mean, std;  // one per channel
  int64_t inner = 1;
};
void NormalizeValues(const Normalization& normalization, DType from_type, std::span<const std::byte> from,
                     DType to_type, std::byte* to);

// Fills the places of one feed in a batch.
class FeedWriter {
 public:
  // Fails where the columns do not fit the spec: an unknown or unusable column, another number of values, a
  // normalization with the wrong number of channels or a std of zero.
  static absl::StatusOr<FeedWriter> Create(const Dataset& data, const FeedSpec& spec);

  const Type& sample() const { return spec_.sample; }
  // Writes sample i to `out`, spec.sample.bytes() bytes. `scratch` is kept by the caller so that it is allocated once.
  absl::Status Write(const Dataset& data, int64_t i, std::byte* out, std::vector<std::byte>* scratch) const;

 private:
  FeedSpec spec_;
  bool normalizes_ = false;
  Normalization normalization_;
};

}  // namespace onnxtrain
