#include "frontend/ops/onnx_import.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

std::span<const OpRow> AttentionOps() { return {}; }

std::span<const OnnxOp> AttentionImports() { return {}; }

}  // namespace onnxtrain
