// Weights within bodies of If, Loop and Scan. For the sources of frontend/onnx alone.
#pragma once

#include <functional>

namespace onnx {
class GraphProto;
}  // namespace onnx

namespace onnxtrain {

// Visits the bodies in a graph's nodes, and those in their nodes.
void ForEachBody(onnx::GraphProto* graph, const std::function<void(onnx::GraphProto*)>& visit);

// Moves the float tensors of bodies (initializers and Constant nodes with two elements or more) to the graph, where
// they are weights like those that bodies read from outside. A name that several graphs define stays where it is. The
// export writes weights where the file has them.
void MoveBodyWeights(onnx::GraphProto* graph);

}  // namespace onnxtrain
