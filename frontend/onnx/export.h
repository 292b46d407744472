// The original model with a closed list of edits: initializer bytes (and what they need: Constant-node weights keep being
// Constants with new bytes, weights that ConstantOfShape fills become initializers). Names, order, metadata, opset and the bytes of untouched initializers stay as they were.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

// Reads the model at `source` again (its SHA-256 must still be `sha256`), applies the edits that it was loaded with,
// replaces the weights (cast back to the stored element type and checked against the stored shape) and writes `target` atomically (temporary file, fsync, rename).
// BatchNormalization and Dropout are left in inference mode. Returns one line per kind of edit, for people.
absl::StatusOr<std::vector<std::string>> Export(const std::string& source, const std::string& sha256,
                                                const std::map<std::string, HostTensor>& weights,
                                                const std::string& target, const ModelEdits& edits = {});

// The same for a model that is loaded, whose external data must still be as it was then, too. What a caller with a model
// in hand uses. External data stays external: external_writer.h says under which names.
absl::StatusOr<std::vector<std::string>> Export(const OnnxModel& model, const std::map<std::string, HostTensor>& weights,
                                                const std::string& target);

}  // namespace onnxtrain
