// Dead code elimination: removes nodes that no graph output depends on.
#pragma once

#include <vector>

#include "frontend/graph/graph.h"
#include "frontend/passes/pass.h"

namespace onnxtrain {

struct DceOptions {
  bool drop_unused_weights = false;  // also parameters, frozen, state and derived inputs without users or updates
  bool drop_unused_feeds = false;    // also feeds without users
};

// Keeps the nodes that graph outputs depend on. Preserves the order of nodes and inputs. `values` (may be null) is set
// to the new values by old ones, kNoValue where there is none.
Graph Dce(const Graph& graph, const DceOptions& options = {}, std::vector<ValueId>* values = nullptr);

// Dce with the default options.
Pass DcePass();

}  // namespace onnxtrain
