#include "frontend/ops/onnx_import.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

std::span<const OpRow> ShapeOps() { return {}; }

std::span<const OnnxOp> ShapeImports() { return {}; }

}  // namespace onnxtrain
