// Exports the original model with trained weights. Names, order, metadata, opsets and the bytes of untouched
// initializers stay. Constant nodes stay and get new bytes; ConstantOfShape nodes that fill weights become
// initializers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

// Reads the file of a loaded model again, which must be unchanged, as its external data, applies the edits that it was
// loaded with, replaces the weights by what the rows of the table of parametrizations store, with the stored shape, and
// writes `target` atomically. Sets BatchNormalization and Dropout to inference mode. External data stays external
// (external_writer.h). Returns one line per kind of change, for users.
absl::StatusOr<std::vector<std::string>> Export(const OnnxModel& model,
                                                const std::map<std::string, HostTensor>& weights,
                                                const std::string& target);

// Returns the bytes that Export would write for a model without external data.
absl::StatusOr<std::string> ExportBytes(const OnnxModel& model, const std::map<std::string, HostTensor>& weights);

// Proves that Export to `target` will succeed with weights of these shapes: makes every edit in memory and checks the
// size, that the folder can be written and that it has room. Writes nothing that stays.
absl::Status CheckExport(const OnnxModel& model, const std::map<std::string, HostTensor>& weights,
                         const std::string& target);

}  // namespace onnxtrain
