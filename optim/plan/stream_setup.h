// Training on a pipe that is read as it comes.
#pragma once

#include <optional>

#include "frontend/data/bind/preprocess.h"
#include "optim/config/config.h"
#include "optim/plan/data_setup.h"

namespace onnxtrain {

// Samples of a window of the pipe that `request` names: whole batches, more where they are shuffled. 0 where the data
// is read to its end before training: it is no pipe, or max_steps does not say when training ends, or something needs
// all samples (a split, text, fitted transforms, a second look at samples).
int64_t StreamWindow(const TrainConfig& config, const OnnxModel& model, const std::optional<Preprocess>& before,
                     const DataRequest& request);

}  // namespace onnxtrain
