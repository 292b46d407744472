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
#include "frontend/onnx/recover/weight_origin.h"

namespace onnxtrain {

// Reads the model at `source` again, whose SHA-256 must still be `sha256`, applies the edits that it was loaded with,
// replaces the weights (cast to the stored element type, with the stored shape) and writes `target` atomically. Sets
// BatchNormalization and Dropout to inference mode. `records` are those of the loaded model: weights that still have
// the values of the initializer that the file stores them in stay there. Returns one line per kind of change, for
// users.
absl::StatusOr<std::vector<std::string>> Export(const std::string& source, const std::string& sha256,
                                                const std::map<std::string, HostTensor>& weights,
                                                const std::string& target, const ModelEdits& edits = {},
                                                const WeightRecords& records = {});

// Exports a loaded model; its external data must be unchanged, too. External data stays external (external_writer.h).
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
