// Undoes merges of nodes that compute the same with the weights of different modules.
#pragma once

#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

// Gives each of several fx nodes, which PyTorch's exporter has made one because they read one value and weights of
// equal bytes, a copy of the node that reads its own parameters: in a fresh model, two normalizations of the input of
// parallel branches (GPT-NeoX, Falcon), or two tokens of zeros of one module (DeiT). The readers still name the fx node
// that they were translated from. The copies read the merged initializers, which NameWeights splits.
void SplitMergedNodes(const TorchMetadata& metadata, ParsedGraph* graph);

}  // namespace onnxtrain
