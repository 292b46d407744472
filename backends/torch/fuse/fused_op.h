// The operator torch.Fused: a small graph, its body, that one generated kernel computes. Attributes:
//   body         the graph as text (frontend/graph/text_form.h): its inputs and outputs are those of the node, in order
//   num_outputs
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::aten {

inline constexpr const char* kFusedOp = "torch.Fused";

// Adds the row to the table of operators.
void RegisterFusedOp();

Attrs MakeFusedAttrs(const Graph& body);
absl::StatusOr<Graph> ParseBody(const Attrs& attrs);

// Decomposes the body into element functions (kernels/element_functions.h), Cast, Dropout, Reshape, Constant and
// reductions. All but casts and views compute in float32 or float64. Values that are half precision in the body are
// rounded to it, as if each operator of the body had a separate kernel; intermediate results within one operator are
// not.
absl::StatusOr<Graph> ExpandBody(const Graph& body);

}  // namespace onnxtrain::aten
