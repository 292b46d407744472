#include "frontend/ops/onnx_import.h"

namespace onnxtrain {

std::span<const OnnxOp> IndexImports() { return {}; }

}  // namespace onnxtrain
