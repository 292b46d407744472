// Running averages r ← m·r + (1 − m)·s over the micro-batches of a global batch, of which each rank runs some.
//
// Micro programs start from zero instead of r. What they leave pending is linear in the statistics s, so the parts of
// the ranks add up: over K micro-batches, r becomes m^K·r + Σ m^(K−1−k)·(1 − m)·s_k. The pieces of a micro-batch that
// ranks have divided make one step together, with the mean of their statistics: the number of steps does not depend on
// the number of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "backends/collectives.h"

namespace onnxtrain {

// Values in [offset, offset + bytes) of two buffers.
struct RunningAverage {
  size_t offset = 0, bytes = 0;
  double momentum = 0;
};

class RunningAverages {
 public:
  // `averages`: r; `pending`: what micro programs write. Of values of `dtype`. All must outlive it.
  RunningAverages(Backend* backend, DType dtype, Buffer* averages, Buffer* pending, std::vector<RunningAverage> parts)
      : backend_(*backend), dtype_(dtype), averages_(*averages), pending_(*pending), parts_(std::move(parts)) {}

  // Begins a global batch of `micros` micro-batches.
  void Begin(int64_t micros);
  // Called before a micro-batch is run, of whose samples this rank has `fraction`. The numbers follow each other.
  absl::Status RunNext(int64_t number, double fraction);
  // Replaces what is pending, with which only micro-batch `number` is, by its term of the sum.
  absl::Status Weigh(int64_t number);
  // Adds the term of r to the sum that is pending.
  absl::Status AddAverages();
  // Sums the terms of all ranks, with that of r. Called by all of them.
  absl::Status FinishTogether(Collectives& ranks, std::string_view what);

 private:
  absl::StatusOr<std::span<std::byte>> Open(Buffer& buffer, std::vector<std::byte>* copy);
  absl::Status Store(std::span<const std::byte> pending);
  void Weigh(std::span<std::byte> pending, double factor, int64_t steps) const;
  void AddAverages(std::span<std::byte> averages, std::span<std::byte> pending) const;
  bool on_host() const { return backend_.device() == "cpu"; }

  Backend& backend_;
  const DType dtype_;
  Buffer &averages_, &pending_;
  const std::vector<RunningAverage> parts_;
  std::vector<std::byte> averages_copy_, pending_copy_;  // of a device's memory
  int64_t micros_ = 0, last_ = -1;                       // `last_`: -1: nothing is pending
  double fraction_ = 1;                                  // by which all that is pending has yet to be multiplied
};

}  // namespace onnxtrain
