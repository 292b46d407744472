#include "frontend/ops/onnx_import.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

std::span<const OpRow> ConvOps() { return {}; }

std::span<const OnnxOp> ConvImports() { return {}; }

}  // namespace onnxtrain
