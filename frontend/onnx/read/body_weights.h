// Moves weights out of bodies of If, Loop and Scan. For the sources of frontend/onnx only.
#pragma once

#include <functional>

namespace onnx {
class GraphProto;
}  // namespace onnx

namespace onnxtrain {

// Calls `visit` for every body of the graph's nodes, including nested bodies.
void ForEachBody(onnx::GraphProto* graph, const std::function<void(onnx::GraphProto*)>& visit);

// Moves the float tensors of bodies (initializers and Constant nodes with at least two elements) to the graph, where
// they become weights like outer tensors that bodies read. A name that several graphs define is not moved. The export
// writes such weights back into the bodies.
void MoveBodyWeights(onnx::GraphProto* graph);

}  // namespace onnxtrain
