// Exports the original model with trained weights. Preserves names, order, metadata, opsets and the bytes of unchanged
// initializers. Constant nodes get new bytes; ConstantOfShape nodes that fill weights become initializers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

// Reads the file of a loaded model again, applies the edits that it was loaded with, replaces the weights by the stored
// forms of their parametrizations, in the stored shapes, sets BatchNormalization and Dropout to inference mode, and
// writes `target` atomically. External data stays external (external_writer.h). Fails if the file or its external data
// has changed. Returns one line for users per kind of change.
absl::StatusOr<std::vector<std::string>> Export(const OnnxModel& model,
                                                const std::map<std::string, HostTensor>& weights,
                                                const std::string& target);

// Writes the base of a model with low-rank updates: A [inputs, rank] and B [rank, outputs] of each are optional inputs
// of the graph, zeros by default, so that the file computes what the base does. `weights` names initializers that
// become optional inputs, too. Fails, naming the product or weight, if the file does not store it as such.
absl::Status ExportAdapterInputs(const OnnxModel& model, const std::vector<std::string>& weights,
                                 const std::string& target);

// Checks that ExportAdapterInputs to `target` will succeed. Leaves no files.
absl::Status CheckAdapterInputs(const OnnxModel& model, const std::vector<std::string>& weights,
                                const std::string& target);

// Returns the bytes that Export would write for a model without external data.
absl::StatusOr<std::string> ExportBytes(const OnnxModel& model, const std::map<std::string, HostTensor>& weights);

// Checks that Export to `target` will succeed with weights of these shapes: makes all edits in memory and checks the
// size, and that the folder is writable and has enough space. Leaves no files.
absl::Status CheckExport(const OnnxModel& model, const std::map<std::string, HostTensor>& weights,
                         const std::string& target);

}  // namespace onnxtrain
