// Passes that run before a backend legalizes a graph, and the cost model and policy of hoisting.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Returns true if a node could be hoisted. Cheaper than ShouldHoist.
bool MayHoist(const Graph& legal);

// Returns the predicate for Hoist (frontend/passes/hoist.h) over a legalized graph, for a program that may run several
// times between two updates. Hoists values of frozen weights, values with several users, which would stay in the arena
// between them, and values that are expensive relative to their users, such as products of few rows. Hoisting any other
// value would cost more than it saves: it would occupy memory permanently and be read from memory instead of caches.
// A copy of a trained weight in more bits than it is stored in is not hoisted either.
// `fused` is the graph that runs and must outlive the predicate; values inside fused kernels are not hoisted.
std::function<bool(const Graph&, const Node&)> ShouldHoist(const FusedGraph& fused);

// Simplifies a program's graph, forward and backward nodes together, and inserts casts so that products compute in
// `compute`: f32 (no casts), bf16 or f16.
absl::StatusOr<Graph> OptimizeProgram(Graph graph, DType compute);

// Returns the estimated seconds of a node on a CPU, from the costs in the operators' rows. Only ratios matter; they are
// the same on every machine, and so are plans.
double NodeSeconds(const Graph& graph, const Node& node);
// Returns the estimated seconds of a node that only moves bytes: a cast, transpose or pack.
double MoveSeconds(const Graph& graph, const Node& node);
double MoveSeconds(double bytes);

}  // namespace onnxtrain
