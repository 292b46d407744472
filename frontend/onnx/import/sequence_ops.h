// Operators on sequences and optionals. The elements of a list are known at import, so these operators compute nothing.
#pragma once

#include "frontend/onnx/import/known_values.h"

namespace onnxtrain {

// Whether the node works on a sequence or optional: by its operator, or as an Identity of a list.
bool IsListOperator(const ParsedNode& node, const ImportValues& inputs);

// Returns the value of the node's output. Positions and sizes must be known at import.
ImportValuesOr ImportListOperator(const ParsedNode& node, const Attrs& attrs, const ImportValues& inputs, Builder* b,
                                  KnownValues* known);

}  // namespace onnxtrain
