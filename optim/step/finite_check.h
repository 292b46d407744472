// Finds the operator at which a gradient becomes infinite or NaN.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "optim/step/loss.h"

namespace onnxtrain {

// Returns the graph of BuildMicro with the squared norm of every float value as outputs. A norm is finite if its value
// is.
absl::StatusOr<Graph> BuildFiniteCheck(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss,
                                       int64_t batch);

// Describes the operator that produces the non-finite values of a gradient; "" if all gradients are finite. Infinite
// constants, such as attention masks, are not reported, but the operator that turns them into NaN is. `norms` are the
// outputs of the graph of BuildFiniteCheck.
absl::StatusOr<std::string> DescribeNonFinite(const ImportedModel& model, const LossChoice& choice,
                                              const LossSpec& loss, int64_t batch,
                                              const std::map<std::string, HostTensor>& norms);

}  // namespace onnxtrain
