// A single TensorProto in a file, as ONNX's conformance cases keep their inputs and outputs.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

// Errors name the file. Element types that we do not have (strings, complex numbers) are kUnimplemented.
absl::StatusOr<HostTensor> LoadTensorFile(const std::string& path);

}  // namespace onnxtrain
