// Quantizes trained weights that the file stores as integers.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"

namespace onnx {
class GraphProto;
}

namespace onnxtrain {

// Quantizes `value` with scale and zero point of the first node of `graph` that reads the initializer `name` as a
// quantized weight, into the type of `stored`. Elements that training did not change keep their stored numbers. `known`
// returns the tensor of a constant by name.
absl::StatusOr<HostTensor> RequantizeWeight(const onnx::GraphProto& graph, const std::string& name,
                                            const HostTensor& value, const HostTensor& stored,
                                            const std::function<absl::StatusOr<HostTensor>(const std::string&)>& known);

}  // namespace onnxtrain
