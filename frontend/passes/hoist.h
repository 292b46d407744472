// Splits off values that depend on weights alone: they are computed once per update instead of in every run.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

struct Hoisted {
  Graph main;    // the graph, with an input of kind kDerived for each hoisted value that it reads
  Graph derive;  // its outputs, named like those inputs, from the parameters and frozen weights that they need
};

// Finds, by value, what depends on parameters, frozen weights and constants alone, and on at least one weight. Excludes
// weights that the program updates (outputs with `into`).
std::vector<bool> FindWeightValues(const Graph& graph);

// Hoists every node that depends on parameters, frozen weights and constants alone and for which `worth` holds (casts,
// transposes, packing: results take memory, so views should stay), with all nodes that it depends on. Excludes weights
// that the program updates (outputs with `into`). Names a derived value after its computation,
// "Transpose(fc.weight)#5e0c…": equal computations on the same weights have one name in all graphs, and programs share
// the buffer. If nothing is hoisted, `derive` has no outputs. Inputs of `main` keep their order, also weights that only
// hoisted nodes read; derived ones follow.
absl::StatusOr<Hoisted> Hoist(const Graph& graph, const std::function<bool(const Graph&, const Node&)>& worth);

}  // namespace onnxtrain
