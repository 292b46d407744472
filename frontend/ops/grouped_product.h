// Products of rows with one of several matrices each, as mixtures of experts compute them. The matrices are stored
// below each other as one quantized matrix, or one of floats (dequantize.h).
#pragma once

#include <cstdint>
#include <vector>

#include "frontend/ops/builder.h"
#include "frontend/ops/dequantize.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

// Returns y [m, …] of x [n, …] and ids [m], n being a divisor of m: y[r] = x[r·n/m]·W, or ·Wᵀ with `transposed`, with
// matrix W = w[ids[r]] of `groups` ones. Negative indices count from the end, as those of Gather.
Val GroupedMatMul(Val x, Val ids, const QuantizedOperands& w, int64_t groups, bool transposed);

// The inputs of a GroupedMatMul node.
enum GroupedInput : size_t { kGroupedX = 0, kGroupedIds = 1, kGroupedMatrix = 2 };

// Returns the rows GroupedMatMul and GroupedMatMulWeightGrad, for the family QuantizeOps.
std::vector<OpRow> MakeGroupedProductRows();

}  // namespace onnxtrain
