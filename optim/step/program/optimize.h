// The passes before a backend legalizes a graph.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Chooses which values that depend on weights alone (packed, cast, transposed) are derived once per update and kept.

// Is there a node that could be hoisted? What follows is expensive.
bool MayHoist(const Graph& legal);

// Returns the predicate for Hoist (frontend/passes/hoist.h) over a legalized graph, for a program that may run several
// times between two updates. Hoisted are values of frozen weights, values with several users (they would stay in the
// arena between them), and values that are expensive beside their users: where products have few rows. Any other value
// would take memory all the time and be read from memory instead of caches, for less than it saves. `fused`: the graph
// as it runs; what a kernel computes on the way is not hoisted. Must outlive the predicate.
std::function<bool(const Graph&, const Node&)> ShouldHoist(const FusedGraph& fused);

// Simplifies a program's graph, forward and backward nodes together, and inserts casts so that products compute in
// `compute`: f32 (no casts), bf16 or f16.
absl::StatusOr<Graph> OptimizeProgram(Graph graph, DType compute);

}  // namespace onnxtrain
