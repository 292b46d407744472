// Who writes and reads which bytes: the part of planning that does not depend on the order of the nodes.
#pragma once

#include <vector>

#include "backends/memory_plan.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

// Values that are views of one another form a group, named by its first value, the root.
struct Flow {
  const Graph* graph = nullptr;
  std::vector<const OpRow*> rows;  // by node; null for Constants and for nodes that no output depends on
  std::vector<ValueId> root;       // by value

  // By root.
  std::vector<std::vector<int32_t>> readers;  // nodes that read any value of the group, without the views themselves
  std::vector<bool> is_output;                // a graph output belongs to the group
  std::vector<Place> bound;  // where the group lives if not in the arena (kNone): an input, a constant, or the bound
                             // memory of an output that can be written directly

  // By node: the nodes that must run before and after it. Beside the data dependencies: whoever reads an input runs
  // before the node that overwrites it.
  std::vector<std::vector<int32_t>> before, after;

  bool runs(int32_t node) const { return rows[node] != nullptr; }
  bool in_arena(ValueId r) const { return bound[r].where == Place::Where::kNone; }
  // May the node write output `out` over the bytes of group `r`, all of whose other readers ran before?
  bool CanOverwrite(int32_t node, ValueId out, ValueId r) const;
};

// By node: does an output depend on it? Constants do not count as nodes.
std::vector<bool> RunningNodes(const Graph& graph);

Flow MakeFlow(const Graph& graph, bool reuse);

}  // namespace onnxtrain
