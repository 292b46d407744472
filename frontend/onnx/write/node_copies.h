// Writes copies of nodes (copied_nodes.h) into a model.
#pragma once

#include "frontend/onnx/recover/weight_origin.h"

namespace onnx {
class GraphProto;
}  // namespace onnx

namespace onnxtrain {

// Adds the copies behind the nodes and makes their readers read them. Returns false, and changes nothing, where the
// graph has no such nodes. Pointers to nodes stay valid.
bool AddNodeCopies(const SplitNodes& split, onnx::GraphProto* graph);

}  // namespace onnxtrain
