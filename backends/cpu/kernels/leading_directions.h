#pragma once

#include "backends/cpu/runtime/kernel.h"

namespace onnxtrain::cpu {

// Prepares LeadingDirections (frontend/ops/leading_directions.h).
absl::StatusOr<Kernel> PrepareLeadingDirections(const KernelContext& c);

}  // namespace onnxtrain::cpu
