// Imports operators on sequences and optionals. They need no nodes, because the elements of a list are known at import.
#pragma once

#include "frontend/onnx/import/known_values.h"

namespace onnxtrain {

// Returns true if the node is an operator on sequences or optionals, or an Identity of a list.
bool IsListOperator(const ParsedNode& node, const ImportValues& inputs);

// Returns the values of the node's outputs. Positions and sizes must be known at import.
ImportValuesOr ImportListOperator(const ParsedNode& node, const Attrs& attrs, const ImportValues& inputs, Builder* b,
                                  KnownValues* known);

}  // namespace onnxtrain
