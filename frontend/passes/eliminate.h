// Dead code elimination and common subexpression elimination.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/passes/pass.h"

namespace onnxtrain {

struct DceOptions {
  bool drop_unused_weights = false;  // drop parameters, frozen, state and derived inputs without users and updates
  bool drop_unused_feeds = false;    // drop feeds without users
};

// Removes nodes that no graph output depends on. Preserves the order of nodes and inputs. Stores in `values` (may be
// null) the new value of each old one, or kNoValue.
Graph Dce(const Graph& graph, const DceOptions& options = {}, std::vector<ValueId>* values = nullptr);

// Returns the pass that runs Dce with default options.
Pass DcePass();

// Replaces each node by the first node with equal operator, inputs (in any order if commutative) and attributes. Leaves
// the dead nodes to Dce. Every operator is a function of its inputs and attributes (random operators: of key and
// stream), so all may be merged. Must run before rematerialization, which clones nodes deliberately.
absl::StatusOr<Graph> Cse(const Graph& graph);

// Returns false if Cse would change nothing. Much cheaper than Cse.
bool HasEqualNodes(const Graph& graph);

}  // namespace onnxtrain
