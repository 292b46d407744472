// Undoes lookups in tables of parameters that the exporter computed.
#pragma once

#include <string>
#include <vector>

#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/write/lazy_tensor.h"

namespace onnxtrain {

// Of these initializers, and of those with names that older exporters generate, trains those that repeat rows with one
// copy of each row, which a Gather reads: a relative position has one bias, wherever it occurs, and all tokens of a
// sequence have the embedding of one token type. Each must be computed from parameters and other values. Rows are the
// same by their bytes, along any axis; equal numbers prove nothing. Identity nodes over such an initializer become
// tables of their own. ALiBi's multiples of slopes become constants.
//
// Biases of which all numbers are equal, as in a fresh model, may have been looked up by the offsets of relative
// positions. `assume`: those that are added to attention scores and have the shape for it are taken for that.
void GatherRepeatedRows(std::vector<std::string> names, bool assume, ParsedGraph* graph);

// Whether nothing but the shape and the readers of a bias tell that its rows, which are equal, were looked up.
bool IsAssumed(const RowCopies& copies, const HostTensor& weight);

// Returns the initializer that the rows of the weight make up.
LazyTensor ExpandRows(const RowCopies& copies, const LazyTensor& weight);

}  // namespace onnxtrain
