// Sessions of a run: its own, and one before it that a learning rate is found with.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/plan/training_run.h"

namespace onnxtrain {

// Creates a session with the weights that the run begins with. Sets run->batch, and leaves samples out, where running
// the model shows that it is bound to its batch.
absl::StatusOr<std::unique_ptr<Session>> OpenSession(const SessionOptions& options, TrainingRun* run);

// Does the run look for a learning rate: where lr_find asks for it, and where lr is auto for plain gradient descent,
// whose best rate follows the scale of the loss, in a run of ten times as many updates as a test takes. Tells of the
// test in shorter ones.
bool DecideRateTest(TrainingRun* run);

// Runs a range test on a session of its own, which is gone before that of the run is made. Replaces the rate in
// run->optimizer and *options. Where the test tells nothing, adds a warning to the run.
absl::Status FindRate(const PreparedModel& prepared, SessionOptions* options, TrainingRun* run);

}  // namespace onnxtrain
