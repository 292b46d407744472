// Reads single values from files: the inputs and outputs of ONNX's conformance cases.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

struct StoredValue {
  std::string name = {};             // of a tensor; "" where the file has none
  bool present = true;               // false: an empty optional
  std::vector<HostTensor> elements;  // of a sequence; one for a tensor or an optional tensor
};

// Reads a TensorProto, SequenceProto or OptionalProto; the file does not say which. Errors name the file. Unsupported
// element types (strings, complex numbers) and sequences of anything but tensors are kUnimplemented.
absl::StatusOr<StoredValue> LoadValueFile(const std::string& path, ValueForm form);

}  // namespace onnxtrain
