// Splits off what depends on weights alone, so that it is computed once per update and not with every run.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

struct Hoisted {
  Graph main;    // the graph, with an input of kind kDerived for each hoisted value that it reads
  Graph derive;  // its outputs, named like those inputs, from the parameters and frozen weights that they need
};

// Hoists every node that depends on parameters, frozen weights and constants alone and that the predicate finds worth
// it (casts, transposes, packing: the results take memory, so a node that only looks should stay), together with all
// that it is computed from. Weights that an output goes `into` are none in this sense: what is made of them serves one run. A derived value is named after its computation — "Transpose(fc.weight)#5e0c…" — so the same
// computation on the same weights has the same name in every graph, and programs can share its buffer. Where nothing is
// hoisted, derive has no outputs. Inputs of `main` keep their order; derived ones follow. A weight that only hoisted
// nodes read stays an input of `main`.
absl::StatusOr<Hoisted> Hoist(const Graph& graph, const std::function<bool(const Graph&, const Node&)>& worth);

}  // namespace onnxtrain
