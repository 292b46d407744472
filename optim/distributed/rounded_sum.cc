#include "optim/distributed/rounded_sum.h"

#include <algorithm>

#include "frontend/base/half.h"
#include "frontend/base/status.h"

namespace onnxtrain {

absl::Status RoundedSum::Sum(std::string_view what, std::span<float> values) {
  const size_t size = ranks_.size(), part = (values.size() + size - 1) / size;
  own_.resize(part * size);  // padded: the elements beyond the values are ignored
  parts_.resize(part * size);
  FloatToBFloat16(values, std::span(own_).first(values.size()));
  RETURN_IF_ERROR(ranks_.AllToAll(what, std::as_bytes(std::span(own_)), std::as_writable_bytes(std::span(parts_))));
  SumParts(part);
  RETURN_IF_ERROR(ranks_.AllGather(what, std::as_bytes(std::span(summed_)), std::as_writable_bytes(std::span(own_))));
  BFloat16ToFloat(std::span(own_).first(values.size()), values);
  return absl::OkStatus();
}

// Sums the parts that the ranks have sent.
void RoundedSum::SumParts(size_t part) {
  sum_.assign(part, 0);
  term_.resize(part);
  summed_.resize(part);
  for (size_t at = 0; at < parts_.size(); at += part) {
    BFloat16ToFloat(std::span(parts_).subspan(at, part), term_);
    for (size_t i = 0; i < part; ++i) sum_[i] += term_[i];
  }
  FloatToBFloat16(sum_, summed_);
}

}  // namespace onnxtrain
