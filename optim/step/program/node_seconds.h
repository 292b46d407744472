// Estimates the time of a node by a model of a CPU.
#pragma once

#include "frontend/graph/graph.h"

namespace onnxtrain {

// Seconds by the costs in the operators' rows. The same on every machine, and so are plans: ratios count only.
double NodeSeconds(const Graph& graph, const Node& node);
// Seconds of a node that only moves bytes: a cast, transpose or pack.
double MoveSeconds(const Graph& graph, const Node& node);

}  // namespace onnxtrain
