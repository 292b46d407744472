// Turns the primitive patterns that exporters write back into composites: LayerNorm, Gelu, Attention,
// CrossEntropy, Softmax and others.
// Composites have exact backward rows and fused kernels, and keep fewer values for the backward pass.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Patterns propose (recognize_*.cc); a proposal is taken if both forms, evaluated on numbers drawn for it, agree
// (prove.h). Belongs before Differentiate and after Simplify, whose canonical forms the patterns expect (x·x for Pow(x,
// 2), trans_b for transposed keys). `found`, if not null, counts the composites that were put in, by operator.
absl::StatusOr<Graph> Recognize(const Graph& graph, std::map<std::string, int>* found = nullptr);

}  // namespace onnxtrain
