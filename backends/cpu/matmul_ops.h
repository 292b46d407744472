// cpu.MatMul and cpu.PackWeight: products with their epilogue, and weights in the layout that is multiplied fastest.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/row.h"

namespace onnxtrain::cpu {

std::vector<OpRow> MatMulRows();

// Joins MatMul + Add of a bias (+ Relu) and lets weights be packed where that pays. Leaves dead nodes behind.
absl::StatusOr<Graph> FuseMatMuls(const Graph& graph);

}  // namespace onnxtrain::cpu
