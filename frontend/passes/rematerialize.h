// Runs parts of the forward pass again instead of keeping their results for the backward pass.
#pragma once

#include <string_view>
#include <vector>

#include "frontend/graph/graph.h"

namespace onnxtrain {

// By node: does it depend on a feed whose name begins with `seeds`, that is on a gradient?
std::vector<bool> DependsOn(const Graph& graph, std::string_view seeds);

// The first such node in the list, or as many as there are nodes where none is. What stands before it is the forward pass.
int32_t FirstBackwardNode(const Graph& graph, std::string_view seeds);

// Nodes from `boundary` on read the results of nodes marked `again` (by node, all before `boundary`) from clones, each of
// which stands right before the first reader that needs it; clones read clones in turn. A view goes with the node whose
// bytes it shows, so marks on views do not matter. A marked node that nothing before `boundary` needs runs as a clone only.
// The list order of the result is the one that needs little memory. Random operators draw the same numbers again, as their
// keys are inputs and their streams attributes.
struct Rematerialized {
  Graph graph;
  std::vector<int32_t> origin;  // by node: which node of the old graph it is or repeats
};
Rematerialized Rematerialize(const Graph& graph, int32_t boundary, const std::vector<bool>& again);

}  // namespace onnxtrain
