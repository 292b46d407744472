// Explains which parts of a graph look like a composite that recognize knows, but were not replaced.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "frontend/graph/graph.h"

namespace onnxtrain {

// Counts the forms of language models that need no composite: kernels for elementwise regions compute them in one pass.

// Returns how often a canonical graph, after recognize, has
//   SwiGlu, GeGlu: x·σ(x)·u, gelu(x)·u — gated units (Shazeer, 2020)
//   RotaryEmbedding: x·cos + rotated(x)·sin, where one half of a head's components, or every other one, changes its
//     place and sign (Su et al., 2021)
std::map<std::string, int> CountElementwiseForms(const Graph& graph);

// Returns one line per near miss of a canonical graph: the composite, the node and the reason.
std::vector<std::string> FindNearMisses(const Graph& graph);

}  // namespace onnxtrain
