// Every value of a training step, by name: the same graph with nothing fused away and nothing overwritten.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "optim/prepare.h"
#include "optim/session.h"

namespace onnxtrain::cli {

// Runs forward and backward of one window (all of it at once) on `backend` with keep_values. Returns the values that
// have a name of their own (model values by their ONNX names), the outputs, and the gradients as "grad:NAME".
absl::StatusOr<std::map<std::string, HostTensor>> TraceValues(const PreparedModel& model, const SessionOptions& options,
                                                              const Window& window, Backend& backend);

}  // namespace onnxtrain::cli
