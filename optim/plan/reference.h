// Evaluates the log-probabilities of the answers of pairs under the initial weights, the reference of dpo and ipo.
#pragma once

#include "absl/status/status.h"
#include "optim/loop/evaluate.h"
#include "optim/step/session.h"

namespace onnxtrain {

// Returns true if the loss reads log-probabilities of a reference.
bool ReadsReference(const LossChoice& loss);

// Replaces data->dataset by a view whose column of the reference has the log-probabilities that the session computes in
// inference mode. The session must have the metric kLogProbabilities, and the weights of the reference.
absl::Status AddReference(Session& session, TrainData* data);

}  // namespace onnxtrain
