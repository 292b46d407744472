// Counts the forms of language models that need no composite: kernels for elementwise regions compute them in one pass.
#pragma once

#include <map>
#include <string>

#include "frontend/graph/graph.h"

namespace onnxtrain {

// Returns how often a canonical graph, after recognize, has
//   SwiGlu, GeGlu: x·σ(x)·u, gelu(x)·u — gated units (Shazeer, 2020)
//   RotaryEmbedding: x·cos + rotated(x)·sin, where one half of a head's components, or every other one, changes its
//     place and sign (Su et al., 2021)
std::map<std::string, int> CountElementwiseForms(const Graph& graph);

}  // namespace onnxtrain
