// torch.WideMatMul: a matrix product of half-precision operands with a float32 result, for gradients of weights. Avoids
// rounding the float32 sums to half precision and the pass over memory of a Cast.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::aten {

inline constexpr char kWideMatMul[] = "torch.WideMatMul";

// Adds the row to the table of operators. Idempotent.
void RegisterWideMatMul();

// Replaces a half-precision MatMul whose only user is a Cast to float32, and that Cast. Does not remove dead nodes. If
// not null, `values` is set to the new values, indexed by old ones.
absl::StatusOr<Graph> WidenProducts(const Graph& graph, std::vector<ValueId>* values = nullptr);

}  // namespace onnxtrain::aten
