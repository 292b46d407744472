// Reads the model and its weights from the artifacts of ONNX Runtime's training API: training_model.onnx,
// eval_model.onnx, optimizer_model.onnx and a checkpoint in one folder.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

// Returns true if the file is a checkpoint (a flatbuffer with the identifier "ODTC") with values. Nominal checkpoints
// have only names.
bool IsOrtCheckpoint(const std::string& path);

// Returns the trained and the frozen weights by name. Safe for untrusted bytes. Errors do not name the file.
absl::StatusOr<std::map<std::string, HostTensor>> ParseOrtCheckpoint(std::span<const std::byte> bytes);

// Returns the bytes of the inference model with the weights of the checkpoint; nullopt if `path` is neither a folder of
// artifacts nor an artifact. If eval_model.onnx does not name the outputs of inference, the loss stays the output and
// the labels an input. Fails, naming the file, if one is missing.
absl::StatusOr<std::optional<std::string>> AssembleOrtArtifacts(const std::string& path);

// Returns the eval model and the checkpoints that AssembleOrtArtifacts reads; empty for any other path.
std::vector<std::string> ListOrtArtifacts(const std::string& path);

}  // namespace onnxtrain
