#include "optim/record/telemetry/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "optim/record/telemetry/wire.h"

namespace onnxtrain {
namespace {

constexpr int kShift = 20;  // of float32's 23 bits of mantissa, three stay

// The least magnitude of a bucket.
double LowerEdge(int bucket) { return std::bit_cast<float>(static_cast<uint32_t>(bucket) << kShift); }

}  // namespace

void Histogram::AddOne(float value) {
  if (!std::isfinite(value)) return;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  ++(std::signbit(value) ? negative_ : positive_)[(bits & 0x7fffffff) >> kShift];
  ++count_;
  const double v = value;
  min_ = std::min(min_, v);
  max_ = std::max(max_, v);
  sum_ += v;
  sum_squares_ += v * v;
}

void Histogram::Add(const HostTensor& tensor) {
  for (int64_t i = 0; i < tensor.size(); ++i) AddOne(static_cast<float>(tensor.At(i)));
}

void Histogram::Append(double from, double limit, int64_t count, double* last, std::string* limits,
                       std::string* counts) {
  if (count == 0) return;
  if (from > *last) *limits += wire::Raw(from), *counts += wire::Raw(0.0);
  *limits += wire::Raw(limit);
  *counts += wire::Raw(static_cast<double>(count));
  *last = limit;
}

std::string Histogram::Proto() const {
  std::string limits, counts;
  double last = -std::numeric_limits<double>::infinity();
  const auto edge = [](int bucket) {
    return bucket < kBuckets ? LowerEdge(bucket) : double{std::numeric_limits<float>::max()};
  };
  for (int b = kBuckets; b-- > 0;) Append(-edge(b + 1), -edge(b), negative_[b], &last, &limits, &counts);
  for (int b = 0; b < kBuckets; ++b) Append(edge(b), edge(b + 1), positive_[b], &last, &limits, &counts);
  return wire::Double(1, min_) + wire::Double(2, max_) + wire::Double(3, static_cast<double>(count_)) +
         wire::Double(4, sum_) + wire::Double(5, sum_squares_) + wire::Sub(6, limits) + wire::Sub(7, counts);
}

}  // namespace onnxtrain
