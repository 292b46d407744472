// Opens the session of a run, and a temporary one that finds its learning rate.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/plan/training_run.h"

namespace onnxtrain {

// Creates a session with the initial weights of the run. If running the model shows that it accepts only one batch
// size, adjusts run->batch and leaves out samples that do not fill a batch.
absl::StatusOr<std::unique_ptr<Session>> OpenSession(const SessionOptions& options, TrainingRun* run);

// Returns true if the run searches for a learning rate: if lr_find is set, or if lr is auto with plain gradient
// descent, whose best rate depends on the scale of the loss, and the run has at least ten times as many updates as the
// test. For shorter runs, adds a hint about the test.
bool DecideRateTest(TrainingRun* run);

// Runs a range test on a temporary session, which is freed before the session of the run is made. Replaces the rate in
// run->optimizer and *options. If the test is inconclusive, adds a warning to the run.
absl::Status FindRate(const PreparedModel& prepared, SessionOptions* options, TrainingRun* run);

}  // namespace onnxtrain
