// Weights that a file stores as integers and that were trained as floats.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"

namespace onnx {
class GraphProto;
}

namespace onnxtrain {

// `value` on the grid that the first node of `graph` that reads initializer `name` quantized lays over it, in the type of
// `stored`; elements that training left alone keep their stored numbers. `known` gives a constant's tensor by its name.
absl::StatusOr<HostTensor> RequantizedFor(const onnx::GraphProto& graph, const std::string& name, const HostTensor& value,
                                          const HostTensor& stored,
                                          const std::function<absl::StatusOr<HostTensor>(const std::string&)>& known);

}  // namespace onnxtrain
