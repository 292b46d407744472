// Copies a part of a graph into a graph of its own.
#pragma once

#include <string>
#include <vector>

#include "frontend/graph/graph.h"

namespace onnxtrain {

// A value of another part, which becomes an input.
struct CutValue {
  ValueId value;
  InputKind kind;
  std::string name;
};

struct ExtractedGraph {
  Graph graph;                  // without outputs
  std::vector<ValueId> values;  // by value of the whole graph; kNoValue where the part has none
};

// Copies the nodes with `keep` and the graph inputs that they read, feeds first. `cuts` has every other value that they
// read; `wanted` are inputs that are copied though no node reads them.
ExtractedGraph Extract(const Graph& whole, const std::vector<bool>& keep, const std::vector<CutValue>& cuts,
                       const std::vector<ValueId>& wanted);

}  // namespace onnxtrain
