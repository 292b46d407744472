// The groups of ranks that a program is bound to, for its collective operators.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "backends/collectives.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Is the node a collective operator of more than one rank?
bool NeedsRanks(const Node& node);

class RankGroups {
 public:
  // Fails where collective operators of the graph ask for another number of ranks. `ranks` must outlive its uses.
  absl::Status Bind(const Graph& graph, std::string_view name, Collectives* ranks);
  // Returns the group of a collective operator; null for other nodes, and where it is not bound.
  Collectives* Find(const Node& node) const;
  // Fails where a collective operator of more than one rank has no group.
  absl::Status CheckAllBound(const Graph& graph) const;

 private:
  std::map<std::string, Collectives*, std::less<>> groups_;
};

}  // namespace onnxtrain
