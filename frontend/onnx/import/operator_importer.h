// Imports one node by the row of its ONNX operator (frontend/ops/import).
#pragma once

#include "frontend/onnx/import/import_state.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {

// Whether the node is a BatchNormalization whose scale is frozen, so that it stays in inference mode.
bool HasFrozenScale(const ImportOptions& options, const ParsedNode& node);

// Returns the values of the node's outputs. All of its inputs have been found.
ImportValuesOr ImportOperator(ImportState& state, ImportScope& scope, const ParsedNode& node, const OnnxOp& op);

}  // namespace onnxtrain
