#include "frontend/passes/min_cut.h"

#include <algorithm>

namespace onnxtrain {

void MinCut::AddEdge(int32_t from, int32_t to, int64_t capacity) {
  edges_[from].push_back({to, static_cast<int32_t>(edges_[to].size()), capacity});
  edges_[to].push_back({from, static_cast<int32_t>(edges_[from].size()) - 1, 0});
}

bool MinCut::FindLevels(int32_t source, int32_t sink) {
  level_.assign(edges_.size(), -1);
  level_[source] = 0;
  std::vector<int32_t> queue = {source};
  for (size_t at = 0; at < queue.size(); ++at) {
    for (const Edge& e : edges_[queue[at]]) {
      if (e.left == 0 || level_[e.to] >= 0) continue;
      level_[e.to] = level_[queue[at]] + 1;
      queue.push_back(e.to);
    }
  }
  return level_[sink] >= 0;
}

// Augments one path of the level graph. Iterative, since a path can be as long as the graph is deep.
int64_t MinCut::Push(int32_t source, int32_t sink) {
  std::vector<std::pair<int32_t, size_t>> path;  // each vertex with the index of its edge
  int32_t v = source;
  while (v != sink) {
    size_t& i = next_[v];
    while (i < edges_[v].size() && (edges_[v][i].left == 0 || level_[edges_[v][i].to] != level_[v] + 1)) ++i;
    if (i < edges_[v].size()) {
      path.emplace_back(v, i);
      v = edges_[v][i].to;
    } else if (path.empty()) {
      return 0;
    } else {
      v = path.back().first;
      path.pop_back();
      ++next_[v];
    }
  }
  int64_t least = kUncuttable;
  for (const auto& [from, i] : path) least = std::min(least, edges_[from][i].left);
  for (const auto& [from, i] : path) {
    Edge& e = edges_[from][i];
    e.left -= least;
    edges_[e.to][e.back].left += least;
  }
  return least;
}

std::vector<bool> MinCut::SourceSide(int32_t source, int32_t sink) {
  while (FindLevels(source, sink)) {
    next_.assign(edges_.size(), 0);
    while (Push(source, sink) > 0) {
    }
  }
  std::vector<bool> side(edges_.size());
  for (size_t v = 0; v < side.size(); ++v) side[v] = level_[v] >= 0;
  return side;
}

}  // namespace onnxtrain
