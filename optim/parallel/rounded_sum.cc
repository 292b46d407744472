#include "optim/parallel/rounded_sum.h"

#include <algorithm>

#include "frontend/base/small_float.h"
#include "frontend/base/status.h"

namespace onnxtrain {

absl::Status RoundedSum::Sum(std::string_view what, std::span<float> values) {
  const size_t size = ranks_.size(), part = (values.size() + size - 1) / size;
  RETURN_IF_ERROR(ExchangeParts(what, values, part));
  sum_.resize(part);
  SumParts(sum_);
  summed_.resize(part);
  FloatToBFloat16(sum_, summed_);
  RETURN_IF_ERROR(ranks_.AllGather(what, std::as_bytes(std::span(summed_)), std::as_writable_bytes(std::span(own_))));
  BFloat16ToFloat(std::span(own_).first(values.size()), values);
  return absl::OkStatus();
}

absl::Status RoundedSum::SumPart(std::string_view what, std::span<const float> values, std::span<float> sum) {
  RETURN_IF_ERROR(ExchangeParts(what, values, sum.size()));
  SumParts(sum);
  return absl::OkStatus();
}

absl::Status RoundedSum::ExchangeParts(std::string_view what, std::span<const float> values, size_t part) {
  own_.resize(part * ranks_.size());  // padded: the elements beyond the values are ignored
  parts_.resize(own_.size());
  FloatToBFloat16(values, std::span(own_).first(values.size()));
  return ranks_.AllToAll(what, std::as_bytes(std::span(own_)), std::as_writable_bytes(std::span(parts_)));
}

// Sums the parts that the ranks have sent.
void RoundedSum::SumParts(std::span<float> sum) {
  std::ranges::fill(sum, 0.0F);
  term_.resize(sum.size());
  for (size_t at = 0; at < parts_.size(); at += sum.size()) {
    BFloat16ToFloat(std::span(parts_).subspan(at, sum.size()), term_);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += term_[i];
  }
}

}  // namespace onnxtrain
