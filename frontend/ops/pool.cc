#include "frontend/ops/onnx_import.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

std::span<const OpRow> PoolOps() { return {}; }

std::span<const OnnxOp> PoolImports() { return {}; }

}  // namespace onnxtrain
