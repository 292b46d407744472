// State that ranks divide (ZeRO): each rank updates its slices of the flat weights, and sends them to the others if
// these keep whole weights.
#pragma once

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/base/status.h"
#include "frontend/graph/graph.h"
#include "optim/config/optimizer.h"
#include "optim/parallel/data_parallel.h"
#include "optim/parallel/shard.h"
#include "optim/step/distribution.h"
#include "optim/step/session.h"
#include "optim/step/training_state.h"

namespace onnxtrain {

// Fails if the update rule cannot update slices of weights separately.
absl::Status CheckDivides(const OptimizerSpec& optimizer);

// Exchanges the divided parts of a session's state.
class DividedState : public StateShards {
 public:
  // `ranks` must outlive this object; null for a plan of rank 0 of `size` ranks.
  DividedState(const SessionOptions& options, TrainingState* state, DataParallel* ranks, int size)
      : options_(options), state_(*state), ranks_(ranks), size_(size) {}

  // Keeps as many gathered bytes as the largest weight has, so that a weight that the end of the forward pass and the
  // begin of the backward pass read is gathered only once.
  absl::StatusOr<Graph> AddGathers(Graph graph) const override;
  // Sends updated weights to all ranks.
  absl::Status ExchangeUpdated() override;
  // Gathers the whole moments (TrainingState::Tensors) on rank 0, until ReleaseGathered.
  absl::Status GatherMoments() override;
  // Gathers the divided weights on rank 0, until ReleaseWeights.
  absl::Status GatherWeights() override;
  absl::Status CheckWholeWeights() const override;
  absl::Status CheckRestores() const override { return Invalid("the moments are divided among the ranks already"); }

 private:
  absl::Status GatherBlocks(const char* what, int rank);
  absl::Status GatherUnit(const char* what, const ShardUnit& unit, DType dtype, const BufferView& own,
                          const BufferView& whole);

  const SessionOptions& options_;
  TrainingState& state_;
  DataParallel* const ranks_;
  const int size_;
};

}  // namespace onnxtrain
