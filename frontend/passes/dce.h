// Removes nodes whose outputs nobody needs.
#pragma once

#include "frontend/graph/graph.h"

namespace onnxtrain {

struct DceOptions {
  // Also remove parameters, frozen, state and derived inputs that nobody reads or writes. Feeds always stay.
  bool drop_unused_weights = false;
};

// The nodes that graph outputs depend on, in their order, with the inputs in theirs.
Graph Dce(const Graph& graph, const DceOptions& options = {});

}  // namespace onnxtrain
