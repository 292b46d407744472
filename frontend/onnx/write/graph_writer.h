// Writes a graph as a model of standard ONNX operators that other runtimes execute.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Returns the bytes of the model. Composites without an ONNX operator are decomposed. Feeds, parameters and state
// become inputs, frozen weights initializers; `values` holds tensors by input name: required for frozen weights, else
// the default of the input. A leading "$" of names is left out; what an output updates is the output NAME_new. Fails,
// naming the node, where ONNX has no operator.
absl::StatusOr<std::string> SerializeGraph(const Graph& graph, const std::map<std::string, HostTensor>& values);

}  // namespace onnxtrain
