// Producers and readers of bytes: the part of memory planning that does not depend on the order of the nodes.
#pragma once

#include <vector>

#include "backends/memory_plan.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

// Values that are views of one another form a group. Its first value is the root.
struct Dataflow {
  const Graph* graph = nullptr;
  std::vector<const OpRow*> rows;  // by node; null for Constants and for nodes that no output depends on
  std::vector<ValueId> root;       // by value

  // By root.
  std::vector<std::vector<int32_t>> readers;  // nodes that read any value of the group, without views
  std::vector<bool> is_output;                // a graph output belongs to the group
  std::vector<Place> bound;  // an input, a constant, or the memory of an output that can be written directly; kNone:
                             // in the arena

  // By node: the nodes that must run before and after it. Readers of an input run before the node that overwrites it.
  std::vector<std::vector<int32_t>> before, after;

  bool runs(int32_t node) const { return rows[node] != nullptr; }
  bool in_arena(ValueId r) const { return bound[r].where == Place::Where::kNone; }
  // May the node write output `out` to the bytes of group `r`, once all other readers have run?
  bool CanOverwrite(int32_t node, ValueId out, ValueId r) const;
};

// Returns by node whether an output depends on it; false for Constants.
std::vector<bool> FindLiveNodes(const Graph& graph);

Dataflow AnalyzeDataflow(const Graph& graph, bool reuse);

}  // namespace onnxtrain
