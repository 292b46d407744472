// Replaces the primitive patterns that exporters write by composites: LayerNorm, Gelu, Attention, CrossEntropy, Softmax
// and others. Composites have exact gradients and fused kernels, and save fewer values for the backward pass.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Replaces the regions that the patterns (recognize_*.cc) propose and whose replacement evaluates to the same values.
// Runs before Differentiate, and after Simplify, whose canonical forms the patterns expect (x·x for Pow(x, 2), trans_b
// for transposed keys). `found`, if not null, counts the inserted composites by operator.
absl::StatusOr<Graph> Recognize(const Graph& graph, std::map<std::string, int>* found = nullptr);

// Replaces x·Gather(W, ids), as exporters write mixtures of experts, by GroupedMatMul, which has no copies of the
// chosen matrices. Runs before Differentiate: without copies, there are no gradients of copies either.
absl::StatusOr<Graph> GroupProducts(const Graph& graph);

// Counts forms of language models that have no composite, because fused elementwise kernels compute them in one pass:
//   SwiGlu, GeGlu: x·σ(x)·u, gelu(x)·u, gated units (Shazeer, 2020)
//   RotaryEmbedding: x·cos + rotated(x)·sin, where `rotated` swaps the two halves, or neighbors, of a head's components
//     and negates one of each pair (Su et al., 2021)
// Requires the canonical graph after Recognize.
std::map<std::string, int> CountElementwiseForms(const Graph& graph);

// Lists the parts of a canonical graph that resemble a composite but were not replaced. Each line names the composite,
// the node and the reason.
std::vector<std::string> FindNearMisses(const Graph& graph);

}  // namespace onnxtrain
