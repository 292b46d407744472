// torch.WideMatMul: the product of two matrices of half precision in float32, as gradients of weights are added up and
// stored. Its sums have that precision anyway: a MatMul rounds them, and a Cast reads and writes all of them again.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::aten {

inline constexpr char kWideMatMul[] = "torch.WideMatMul";

// Adds the row to the table of operators. Idempotent.
void RegisterWideMatMul();

// Replaces casts to float32 of products that nothing else reads. Leaves dead nodes behind. `values` (may be null) is
// set to the new values by old ones.
absl::StatusOr<Graph> WidenProducts(const Graph& graph, std::vector<ValueId>* values = nullptr);

}  // namespace onnxtrain::aten
