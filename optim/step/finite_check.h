// Finds the operator at which a gradient becomes infinite or not a number.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "optim/step/loss.h"

namespace onnxtrain {

// Returns the graph of BuildMicro with other outputs: the squared norm of every float value, which is finite where the
// value is.
absl::StatusOr<Graph> BuildFiniteCheck(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss,
                                       int64_t batch);

// Says where values that are not finite, and reach a gradient, come from; "" where all gradients are finite. Infinities
// that are constants, as those of attention masks, are no origin: there it is the operator that makes NaN of them.
// `norms` are the outputs of BuildFiniteCheck.
absl::StatusOr<std::string> DescribeNonFinite(const ImportedModel& model, const LossChoice& choice,
                                              const LossSpec& loss, int64_t batch,
                                              const std::map<std::string, HostTensor>& norms);

}  // namespace onnxtrain
