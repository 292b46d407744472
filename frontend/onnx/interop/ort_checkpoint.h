// Reads checkpoints of ONNX Runtime's training API: a flatbuffer with the identifier "ODTC".
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

// Whether the file holds a checkpoint with values. A nominal one has names alone.
bool IsOrtCheckpoint(const std::string& path);

// Returns the trained and the frozen weights by name. The bytes are not trusted. Errors do not name the file.
absl::StatusOr<std::map<std::string, HostTensor>> ParseOrtCheckpoint(std::span<const std::byte> bytes);

}  // namespace onnxtrain
