// Producers and readers of bytes: the part of memory planning that does not depend on the order of the nodes.
#pragma once

#include <vector>

#include "backends/memory_plan.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

// Producers and readers of the bytes of a graph. Values that are views of one another form a group, named by its first
// value, the root.
struct Dataflow {
  const Graph* graph = nullptr;
  std::vector<const OpRow*> rows;  // by node; null for Constants and for nodes that no output depends on
  std::vector<ValueId> root;       // by value

  // Indexed by root.
  std::vector<std::vector<int32_t>> readers;  // nodes that read any value of the group, without views
  std::vector<bool> is_output;                // true if a graph output belongs to the group
  std::vector<Place> bound;  // an input, a constant, or the memory of an output that can be written directly; kNone:
                             // in the arena

  // Indexed by node: the nodes that must run before and after it. Readers of an input run before the node that
  // overwrites it.
  std::vector<std::vector<int32_t>> before, after;

  bool runs(int32_t node) const { return rows[node] != nullptr; }
  bool IsView(int32_t node) const {
    const ValueId output = graph->nodes()[node].outputs[0];
    return root[output] != output;
  }
  bool in_arena(ValueId r) const { return bound[r].where == Place::Where::kNone; }
  // Returns true if the node may write output `out` to the bytes of group `r` once all other readers have run.
  bool CanOverwrite(int32_t node, ValueId out, ValueId r) const;
};

// Returns a flag per node: true if a graph output depends on it and it is not a Constant.
std::vector<bool> FindLiveNodes(const Graph& graph);

Dataflow AnalyzeDataflow(const Graph& graph, bool reuse);

}  // namespace onnxtrain
