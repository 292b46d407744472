// Writes a graph as a model of standard ONNX operators that other runtimes execute.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Returns the bytes of the model. Composites without an ONNX operator are decomposed. Feeds, parameters and state
// become inputs, frozen weights initializers. `values` holds tensors by input name, which are required for frozen
// weights and the defaults of other inputs. Removes a leading "$" from names; an output that updates the input NAME is
// called NAME_new. Fails, naming the node, if ONNX has no operator for it.
absl::StatusOr<std::string> SerializeGraph(const Graph& graph, const std::map<std::string, HostTensor>& values);

}  // namespace onnxtrain
