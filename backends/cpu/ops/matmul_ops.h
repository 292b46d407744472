// cpu.MatMul and cpu.PackWeight: products with their epilogue, and weights in the layout that oneDNN multiplies
// fastest.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "frontend/ops/row.h"

namespace onnxtrain::cpu {

std::vector<OpRow> MatMulRows();

// Element types of factors.
bool IsMultiplied(DType dtype);

// Bytes of a packed k×n weight for products of so many rows; 0 where oneDNN prefers it unpacked.
absl::StatusOr<size_t> PackedBytes(int64_t rows, int64_t k, int64_t n, DType dtype);

}  // namespace onnxtrain::cpu
