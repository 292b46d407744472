// Part of the imports of the elementwise family: ONNX's early experiments and ATen nodes. Internal to frontend/ops.
#pragma once

#include <span>

#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {

std::span<const OnnxOp> LegacyImports();

}  // namespace onnxtrain
