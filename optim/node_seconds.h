// How long a node runs, by a model of a CPU.
#pragma once

#include "frontend/graph/graph.h"

namespace onnxtrain {

// The same on every machine, so that plans are: what counts are ratios. From the costs in the operators' rows.
double NodeSeconds(const Graph& graph, const Node& node);
// Of a node that only moves bytes: casts, transposes, packs.
double MoveSeconds(const Graph& graph, const Node& node);

}  // namespace onnxtrain
