// Moves values that depend only on weights to a separate program, which runs when they change instead of in every pass.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

struct Hoisted {
  Graph main;    // the graph with an input of kind kDerived for each hoisted value that it reads
  Graph derive;  // computes these values, as outputs of the same names, from parameters and frozen weights
};

// Returns by value whether it depends only on parameters, frozen weights and constants, and on at least one weight.
// Weights that the program updates (outputs with `into`) do not count as weights.
std::vector<bool> FindWeightValues(const Graph& graph);

// Returns by value whether it depends on frozen weights and constants alone.
std::vector<bool> FindFrozenValues(const Graph& graph);

// Hoists every node with a value of FindWeightValues for which `should_hoist` returns true, and all nodes that it
// depends on. `should_hoist` should accept casts, transposes and packing, but not views, since each derived value takes
// memory. A derived value is named after its computation, "Transpose(fc.weight)#5e0c…", so that programs with equal
// computations share one buffer. If nothing is hoisted, `derive` has no outputs. `main` keeps all inputs in their
// order, including weights that only hoisted nodes read; derived inputs follow.
absl::StatusOr<Hoisted> Hoist(const Graph& graph, const std::function<bool(const Graph&, const Node&)>& should_hoist);

}  // namespace onnxtrain
