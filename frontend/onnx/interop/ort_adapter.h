// The file format of adapters in ONNX Runtime: tensors by the names of model inputs, which
// RunOptions.add_active_adapter feeds.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

inline constexpr char kOrtAdapterSuffix[] = ".onnx_adapter";

// Writes the file atomically. Errors name it.
absl::Status WriteOrtAdapter(const std::string& path, const std::map<std::string, HostTensor>& tensors);

// Reads a file. Safe for untrusted bytes. Errors name the file.
absl::StatusOr<std::map<std::string, HostTensor>> ReadOrtAdapter(const std::string& path);

}  // namespace onnxtrain
