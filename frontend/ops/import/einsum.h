// Einsum → Transpose, Reshape, ReduceSum, Mul and MatMul. Internal to frontend/ops.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/ops/builder.h"

namespace onnxtrain {

// numpy's einsum: "ij,jk->ik", implicit outputs, "…" and repeated letters included. Operands are taken from left to
// right, two at a time, each pair as one (batched) product.
absl::StatusOr<Val> Einsum(const std::string& equation, const std::vector<Val>& operands);

}  // namespace onnxtrain
