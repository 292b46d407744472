// Moments that are divided among ranks: each updates its slices of the flat weights, and sends them to the others.
#pragma once

#include "absl/status/status.h"
#include "optim/config/optimizer.h"
#include "optim/parallel/data_parallel.h"
#include "optim/step/training_state.h"

namespace onnxtrain {

// Can slices of weights be updated by themselves?
absl::Status CheckDivides(const OptimizerSpec& optimizer);

// Has every rank get the weights that the others have updated.
absl::Status ShareWeights(Backend& backend, DataParallel& ranks, const TrainingState& state);

// Has rank 0 get the whole moments (TrainingState::Tensors), until ReleaseGathered.
absl::Status GatherMoments(const OptimizerSpec& optimizer, DataParallel& ranks, TrainingState* state);

// Has rank 0 get the weights that are divided, until ReleaseWeights.
absl::Status GatherDividedWeights(DataParallel& ranks, TrainingState* state);

}  // namespace onnxtrain
