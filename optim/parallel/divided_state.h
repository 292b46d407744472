// State that ranks divide: each updates its slices of the flat weights, and sends them to the others, where these keep
// whole weights.
#pragma once

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/base/status.h"
#include "frontend/graph/graph.h"
#include "optim/config/optimizer.h"
#include "optim/parallel/data_parallel.h"
#include "optim/parallel/shard.h"
#include "optim/step/session.h"
#include "optim/step/state_shards.h"
#include "optim/step/training_state.h"

namespace onnxtrain {

// Can slices of weights be updated by themselves?
absl::Status CheckDivides(const OptimizerSpec& optimizer);

// Exchanges what ranks divide of a session's state.
class DividedState : public StateShards {
 public:
  // `ranks` must outlive it. Null: a plan for the first of `size` ranks.
  DividedState(const SessionOptions& options, TrainingState* state, DataParallel* ranks, int size)
      : options_(options), state_(*state), ranks_(ranks), size_(size) {}

  // As many bytes are kept as the largest weight has: one that the end of the forward pass reads, and then the begin of
  // the backward pass, is gathered once.
  absl::StatusOr<Graph> AddGathers(Graph graph) const override;
  // Has every rank get the weights that the others have updated.
  absl::Status ExchangeUpdated() override;
  // Has rank 0 get the whole moments (TrainingState::Tensors), until ReleaseGathered.
  absl::Status GatherMoments() override;
  // Has rank 0 get the weights that are divided, until ReleaseWeights.
  absl::Status GatherWeights() override;
  absl::Status CheckWholeWeights() const override;
  absl::Status CheckRestores() const override { return Invalid("the moments are divided among the ranks already"); }

 private:
  absl::Status GatherUnit(const char* what, const ShardUnit& unit, DType dtype, const BufferView& own,
                          const BufferView& whole);

  const SessionOptions& options_;
  TrainingState& state_;
  DataParallel* const ranks_;
  const int size_;
};

}  // namespace onnxtrain
