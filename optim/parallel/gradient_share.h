// Sums of gradients that are sent as bfloat16, and gradients that are divided among ranks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "backends/backend.h"
#include "backends/collectives.h"
#include "optim/parallel/gradient_pieces.h"
#include "optim/step/training_state.h"

namespace onnxtrain {

// Sums float32 values over ranks by a reduce-scatter and an all-gather of bfloat16. Every rank sums a part of the
// values in float32, in the order of the ranks, so all ranks get the same bits. Thread-compatible.
class RoundedSum {
 public:
  // `ranks` must outlive this object.
  explicit RoundedSum(Collectives* ranks) : ranks_(*ranks) {}

  // Replaces the values with their sums, rounded to bfloat16.
  absl::Status Sum(std::string_view what, std::span<float> values);
  // Stores this rank's part of the sums, one of size() equal parts, in `sum` without rounding.
  absl::Status SumPart(std::string_view what, std::span<const float> values, std::span<float> sum);

 private:
  absl::Status ExchangeParts(std::string_view what, std::span<const float> values, size_t part);
  void SumParts(std::span<float> sum);

  Collectives& ranks_;
  std::vector<uint16_t> own_, parts_, summed_;
  std::vector<float> sum_, term_;
};

// Sums gradients of which each rank keeps only its slices (ZeRO-2).
//
// In every round each rank runs one micro-batch, or none. While the program computes, the pieces of complete buckets
// are copied out of its memory, which other gradients then reuse, and a thread reduce-scatters them. At most two pieces
// wait; a program that is faster than the network blocks.
class GradientShare : public OutputListener {
 public:
  // `state` has gradients divided by pieces.units(). `state`, `pieces` and `ranks` must outlive this object. With
  // `send_bf16`, values are sent as bfloat16.
  GradientShare(Collectives* ranks, const GradientPieces* pieces, const TrainingState& state, bool send_bf16);

  // Returns the bytes of host memory that a rank needs in addition to its slices.
  static int64_t StagingBytes(const GradientPieces& pieces, int ranks);

  // Begins an update.
  void Begin();
  // Begins a round. `gradients` are the regions to which the next program writes pieces.outputs; empty if this rank
  // runs no program.
  void BeginRound(std::span<const Region* const> gradients);
  // Starts the sums of a round without a program, with zeros, and returns immediately. Must precede EndRound.
  void SendZeros();
  // Waits for the sums of a round. All ranks call it. If the program has not written all gradients (`ran` is false),
  // the rest counts as zero. `lost` is an error after which this rank no longer waits for others.
  absl::Status EndRound(bool ran, const absl::Status& lost = absl::OkStatus());
  // Returns the squared norm of the sums of all ranks. All ranks call it.
  absl::StatusOr<double> SumSquares();

  // Return totals since Begin. Must follow EndRound.
  int64_t sent_bytes() const { return sent_; }
  double seconds() const { return seconds_; }  // time in collectives
  double waited() const { return waited_; }    // time that programs waited for collectives

 private:
  void OnComplete(size_t bucket) override;
  void Stage(size_t piece, bool zeros);
  absl::Status ScatterNext();
  template <typename T>
  void AddParts(std::span<const std::byte> parts, size_t slice, std::span<std::byte> sums) const;
  std::vector<std::span<std::byte>> StagedSlices();

  Collectives& ranks_;
  const GradientPieces& pieces_;
  const bool send_bf16_;
  RoundedSum rounded_;
  std::vector<std::span<std::byte>> sums_;  // by piece
  std::array<std::vector<std::byte>, 2> staged_;
  std::vector<std::byte> parts_;
  std::span<const Region* const> gradients_;
  size_t next_staged_ = 0, next_scattered_ = 0;  // pieces; `next_scattered_` is the thread's during a round
  bool first_round_ = true;
  int64_t sent_ = 0;
  double seconds_ = 0, waited_ = 0;
  std::unique_ptr<OrderedReduce> reduce_;
};

}  // namespace onnxtrain
