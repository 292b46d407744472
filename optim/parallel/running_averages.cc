#include "optim/parallel/running_averages.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/graph/type.h"

namespace onnxtrain {
namespace {

template <typename T>
void ScaleValues(std::span<std::byte> bytes, double factor) {
  const std::span values(reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T));
  if (factor == 0) {
    std::ranges::fill(values, T{0});
    return;
  }
  for (T& value : values) value = static_cast<T>(value * factor);
}

// Multiplies values of `dtype`, f32 or f64, by `factor`. A factor of 0 also clears non-finite values.
inline void Scale(std::span<std::byte> bytes, DType dtype, double factor) {
  dtype == DType::kFloat64 ? ScaleValues<double>(bytes, factor) : ScaleValues<float>(bytes, factor);
}

// sums += factor·terms.
template <typename T>
void AddScaled(double factor, std::span<const std::byte> terms, std::span<std::byte> sums) {
  const T* const from = reinterpret_cast<const T*>(terms.data());
  T* const to = reinterpret_cast<T*>(sums.data());
  for (size_t i = 0; i < sums.size() / sizeof(T); ++i) to[i] += static_cast<T>(from[i] * factor);
}

}  // namespace

void RunningAverages::Begin(int64_t micros) {
  micros_ = micros;
  last_ = -1;
  fraction_ = 1;
}

// A program multiplies what is pending by the momentum and adds the whole statistics of its samples.
absl::Status RunningAverages::RunNext(int64_t number, double fraction) {
  const double factor = fraction_ / fraction;
  fraction_ = fraction;
  if (std::exchange(last_, number) < 0 || factor == 1) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto pending, Open(pending_, &pending_copy_));
  Weigh(pending, factor, 0);
  return Store(pending);
}

absl::Status RunningAverages::Weigh(int64_t number) {
  ASSIGN_OR_RETURN(const auto pending, Open(pending_, &pending_copy_));
  Weigh(pending, 1, micros_ - 1 - number);
  return Store(pending);
}

absl::Status RunningAverages::AddAverages() {
  ASSIGN_OR_RETURN(const auto pending, Open(pending_, &pending_copy_));
  ASSIGN_OR_RETURN(const auto averages, Open(averages_, &averages_copy_));
  AddAverages(averages, pending);
  return Store(pending);
}

// A rank without a sample has left what an earlier update had pending.
absl::Status RunningAverages::FinishTogether(Collectives& ranks, std::string_view what) {
  ASSIGN_OR_RETURN(const auto pending, Open(pending_, &pending_copy_));
  last_ < 0 ? Weigh(pending, 0, 0) : Weigh(pending, fraction_, micros_ - 1 - last_);
  RETURN_IF_ERROR(ranks.AllReduce(what, dtype_, pending, Reduction::kSum));
  ASSIGN_OR_RETURN(const auto averages, Open(averages_, &averages_copy_));
  AddAverages(averages, pending);
  return Store(pending);
}

absl::StatusOr<std::span<std::byte>> RunningAverages::Open(Buffer& buffer, std::vector<std::byte>* copy) {
  RETURN_IF_ERROR(backend_.Synchronize());
  if (on_host()) return std::span(static_cast<std::byte*>(buffer.data()), buffer.size());
  copy->resize(buffer.size());
  RETURN_IF_ERROR(buffer.Read(0, *copy));
  return std::span(*copy);
}

absl::Status RunningAverages::Store(std::span<const std::byte> pending) {
  return on_host() ? absl::OkStatus() : pending_.Write(0, pending);
}

// Multiplies by factor·m^steps.
void RunningAverages::Weigh(std::span<std::byte> pending, double factor, int64_t steps) const {
  for (const RunningAverage& part : parts_) {
    const double weight = factor * std::pow(part.momentum, steps);
    if (weight != 1) Scale(pending.subspan(part.offset, part.bytes), dtype_, weight);
  }
}

void RunningAverages::AddAverages(std::span<std::byte> averages, std::span<std::byte> pending) const {
  const auto add = dtype_ == DType::kFloat64 ? AddScaled<double> : AddScaled<float>;
  for (const RunningAverage& part : parts_) {
    const double decay = std::pow(part.momentum, micros_);
    if (decay != 0) add(decay, averages.subspan(part.offset, part.bytes), pending.subspan(part.offset, part.bytes));
  }
}

}  // namespace onnxtrain
