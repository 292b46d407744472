// Separates the product that com.microsoft's Attention computes queries, keys and values by from the attention itself.
// A low-rank update needs the product as a node.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

// Returns true if the node multiplies its first input by the matrix that is its second.
bool HoldsProjection(const ParsedNode& node);

// Turns the node into its product with the matrix. Returns the nodes that compute the outputs from it: the bias is
// added, then a node kProjectedAttention reads the sum.
std::vector<ParsedNode> SplitProjection(ParsedNode* node);

// Returns the outputs of queries, keys and values, in this order, of a matrix of so many outputs; empty if the
// attributes contradict it.
std::vector<int64_t> ReadProjectionWidths(const ParsedNode& node, int64_t outputs);

}  // namespace onnxtrain
