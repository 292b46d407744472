// Fuses elementwise operators, normalizations and reductions into torch.Fused nodes, for devices on which every kernel
// costs a launch and a pass over memory.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::aten {

// The operator torch.Fused: a small graph, its body, that one generated kernel computes. Attributes:
//   body         the graph as text (frontend/graph/text_form.h): its inputs and outputs are those of the node, in order
//   num_outputs
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

// Fuses chains of operators over one shape with reductions of their rows, whose results the chain may read, and with
// sums of their columns, which only outputs may read. Also replaces single operators for which ATen launches several
// kernels. Does not remove dead nodes. If not null, `values` is set to the new values, indexed by old ones; kNoValue
// for values that exist only within a kernel.
absl::StatusOr<Graph> FuseGraph(const Graph& legal, std::vector<ValueId>* values = nullptr);

// Returns true if a generated kernel that sums the columns of a matrix of `elements` elements is faster than ATen's.
bool PaysToSumColumns(int64_t elements, int64_t columns);

// Options of the source that generated kernels begin with.
struct PreludeOptions {
  bool wide = false;        // the type `real`, in which kernels compute, is double; else float
  bool long_index = false;  // elements are counted in 64 bits
};

// Returns the functions that generated kernels call. The source is valid CUDA C++, and valid C++ given definitions of
// CUDA's keywords (blockIdx, __shared__, __syncthreads …).
std::string MakePrelude(const PreludeOptions& options);

}  // namespace onnxtrain::aten
