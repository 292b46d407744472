// Removes nodes whose outputs nobody needs.
#pragma once

#include "frontend/graph/graph.h"

namespace onnxtrain {

struct DceOptions {
  bool drop_unused_weights = false;  // also parameters, frozen, state and derived inputs that nobody reads or writes
  bool drop_unused_feeds = false;    // also feeds that nobody reads
};

// The nodes that graph outputs depend on, in their order, with the inputs in theirs.
Graph Dce(const Graph& graph, const DceOptions& options = {});

}  // namespace onnxtrain
