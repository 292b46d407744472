// Undoes merges of nodes that take equal parameters of different modules apart.
#pragma once

#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

// Gives the modules that read parts of a fresh parameter, which PyTorch's exporter has merged with theirs, nodes of
// their own that take it apart: the biases of the attentions to the memory of a decoder. The nodes are named as an fx
// node of the module with its parameter, by which NameWeights splits the parameter.
void SplitMergedParts(const TorchMetadata& metadata, ParsedGraph* graph);

}  // namespace onnxtrain
