// The table of frontend/ops/GRADIENTS.md: what each ONNX operator becomes, whether it has a gradient, and who runs it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {

// The whole file, a function of the operators and the backends alone. Fails where an operator has no example.
absl::StatusOr<std::string> OpTablePage();

// Does a gradient flow through the operator's example to one of its inputs?
absl::StatusOr<bool> HasGradient(const OnnxOp& op);

}  // namespace onnxtrain
