// Gradients that are divided among ranks (ZeRO-2): each rank keeps the sums of its slices alone.
//
// In every round each rank runs one micro-batch, or none. While the program computes, the pieces of buckets that are
// complete are copied out of its memory, which is then free for other gradients, and a thread reduce-scatters them. At
// most two pieces wait: a program that is faster than the network waits for it.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "backends/backend.h"
#include "backends/collectives.h"
#include "optim/parallel/gradient_pieces.h"
#include "optim/parallel/rounded_sum.h"
#include "optim/step/training_state.h"

namespace onnxtrain {

class GradientShare : public OutputListener {
 public:
  // `state`, whose gradients are divided by pieces.units(), `pieces` and `ranks` must outlive it. `rounds`: values are
  // sent as bfloat16.
  GradientShare(Collectives* ranks, const GradientPieces* pieces, const TrainingState& state, bool rounds);

  // Host memory that a rank needs beside its slices, bytes.
  static int64_t StagingBytes(const GradientPieces& pieces, int ranks);

  // Begins an update.
  void Begin();
  // Begins a round. `gradients`: where the program that runs next writes pieces.outputs; empty: none runs.
  void BeginRound(std::span<const Region* const> gradients);
  // Of a round without a program: has the sums begin, with zeros, and returns. Before EndRound.
  void SendZeros();
  // Waits for the sums of a round. `ran`: the program has written all gradients; else what is left counts as zero.
  // Called by all ranks. `lost`: an error after which other ranks are not waited for any more.
  absl::Status EndRound(bool ran, const absl::Status& lost = absl::OkStatus());
  // Returns the squared norm of the sums of all ranks. Called by all of them.
  absl::StatusOr<double> SumSquares();

  // Since Begin. After EndRound.
  int64_t sent_bytes() const { return sent_; }
  double seconds() const { return seconds_; }  // in collectives
  double waited() const { return waited_; }    // for them

 private:
  void OnComplete(size_t bucket) override;
  void Stage(size_t piece, bool zeros);
  absl::Status ScatterNext();
  template <typename T>
  void AddParts(std::span<const std::byte> parts, size_t slice, std::span<std::byte> sums) const;
  std::vector<std::span<std::byte>> StagedSlices();

  Collectives& ranks_;
  const GradientPieces& pieces_;
  const bool rounds_;
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
