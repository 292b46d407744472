// The family of recurrent layers, for the table of operators.
#pragma once

#include <span>

#include "frontend/ops/onnx_import.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

std::span<const OpRow> RecurrentOps();
std::span<const OnnxOp> RecurrentImports();

}  // namespace onnxtrain
