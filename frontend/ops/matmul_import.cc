#include "frontend/ops/onnx_import.h"

namespace onnxtrain {

std::span<const OnnxOp> MatmulImports() { return {}; }

}  // namespace onnxtrain
