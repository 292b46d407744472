// Undoes lookups in tables of parameters that the exporter computed.
#pragma once

#include <string>
#include <vector>

#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/parsed.h"

namespace onnxtrain {

// Of these initializers, and of those with names that older exporters generate, trains those that repeat rows with one
// copy of each row, which a Gather reads: a relative position has one bias, wherever it occurs, and all tokens of a
// sequence have the embedding of one token type. Each must be computed from parameters and other values. Rows are the
// same by their bytes; equal numbers prove nothing.
void GatherRepeatedRows(std::vector<std::string> names, ParsedGraph* graph);

// Returns the initializer that the rows of the weight make up.
HostTensor ExpandRows(const RowCopies& copies, const HostTensor& weight);

}  // namespace onnxtrain
