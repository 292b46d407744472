// Archives of named arrays, as NumPy's savez and savez_compressed write them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

using NamedArrays = std::vector<std::pair<std::string, HostTensor>>;

// All arrays in the file's order, in memory, of any shapes. Sizes are checked against each other (zip directory, .npy
// header, what deflate can do) and against `max_bytes` (0: half of what is left) before memory is taken.
// Errors name the file and the array.
absl::StatusOr<NamedArrays> ReadNpz(const std::string& path, int64_t max_bytes = 0);

// Writes the arrays, stored or deflated, replacing `path` atomically. bf16 has no NumPy type: fails.
absl::Status WriteNpz(const std::string& path, const NamedArrays& arrays, bool compressed = false);

}  // namespace onnxtrain
