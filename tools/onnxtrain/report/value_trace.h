// Every value of a training step by name: runs the graph without fusion across named values and without overwriting.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "optim/step/prepare.h"
#include "optim/step/session.h"

namespace onnxtrain::cli {

// Runs forward and backward of one global batch (all of it at once) on `backend` with keep_values. Returns the values
// that have a name of their own (model values by their ONNX names), the outputs, and the gradients as "grad:NAME".
absl::StatusOr<std::map<std::string, HostTensor>> TraceValues(const PreparedModel& model, const SessionOptions& options,
                                                              const GlobalBatch& global_batch, Backend& backend);

}  // namespace onnxtrain::cli
