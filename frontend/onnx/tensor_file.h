// A single value in a file, as ONNX's conformance cases keep their inputs and outputs.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

// A TensorProto. Errors name the file. Element types that we do not have (strings, complex numbers) are kUnimplemented.
absl::StatusOr<HostTensor> LoadTensorFile(const std::string& path);

struct StoredValue {
  bool present = true;               // false: an optional that holds nothing
  std::vector<HostTensor> elements;  // of a sequence; a tensor, or an optional one that is present: one element
};

// A TensorProto, SequenceProto or OptionalProto: the file itself does not say which. Sequences of anything but tensors are
// kUnimplemented.
absl::StatusOr<StoredValue> LoadValueFile(const std::string& path, ValueForm form);

}  // namespace onnxtrain
