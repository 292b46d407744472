// Running averages r ← m·r + (1 − m)·s over the micro-batches of a global batch, of which each rank runs some.
//
// Micro programs start from zero instead of r. The values they leave pending are linear in the statistics s, so the
// ranks' parts can be summed: over K micro-batches, r becomes m^K·r + Σ m^(K−1−k)·(1 − m)·s_k. The pieces of a
// micro-batch that ranks share make one step with the mean of their statistics, so that the number of steps does not
// depend on the number of ranks.
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

// One running average: bytes [offset, offset + bytes) of both buffers.
struct RunningAverage {
  size_t offset = 0, bytes = 0;
  double momentum = 0;
};

class RunningAverages {
 public:
  // `averages` holds r, `pending` the values that micro programs write, both of type `dtype`. All must outlive this
  // object.
  RunningAverages(Backend* backend, DType dtype, Buffer* averages, Buffer* pending, std::vector<RunningAverage> parts)
      : backend_(*backend), dtype_(dtype), averages_(*averages), pending_(*pending), parts_(std::move(parts)) {}

  // Begins a global batch of `micros` micro-batches.
  void Begin(int64_t micros);
  // Called before micro-batch `number` is run, with consecutive numbers. This rank has `fraction` of its samples.
  absl::Status RunNext(int64_t number, double fraction);
  // Replaces the pending values, which must come from micro-batch `number` alone, with its term of the sum.
  absl::Status Weigh(int64_t number);
  // Adds the term of r to the pending sum.
  absl::Status AddAverages();
  // Sums the terms of all ranks and that of r. All ranks call it.
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
  double fraction_ = 1;                                  // factor that is not yet applied to the pending values
};

}  // namespace onnxtrain
