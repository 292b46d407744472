// A partition of a graph's nodes into units that stays acyclic while units are merged.
#pragma once

#include <span>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "frontend/passes/match.h"

namespace onnxtrain {

// Keeps the units in a topological order (a numbered list, renumbered when a gap closes). Searches visit only units
// between those to be merged and alternate between forward and backward until one side is exhausted, so that neighbors
// merge in constant time regardless of the size of the graph.
class UnitGraph {
 public:
  // Makes every node a unit. The pattern must outlive the object.
  explicit UnitGraph(const Pattern& pattern);

  // Returns the unit of a node. A unit is named by the index of one of its nodes.
  int32_t unit(int32_t node) const { return unit_[node]; }
  // Returns the nodes, ascending; empty for a unit that was merged into another.
  std::span<const int32_t> members(int32_t unit) const { return members_[unit]; }
  // Merges the units into the first of them and returns true, unless a path leaves them and returns, or the search for
  // such a path visits more than kMaxSearch edges.
  bool TryMerge(std::span<const int32_t> units);

  // Returns the units in topological order. Among ready units, the one that is due first comes first: at its last
  // member, or earlier where a reader is due earlier.
  std::vector<int32_t> Order() const;
  // Returns true if the value is a graph output or read by a unit other than its producer's.
  bool IsReadOutside(ValueId v) const;

  static constexpr int64_t kMaxSearch = 4096;
  // Returns the number of edges that all searches have visited.
  int64_t visited_edges() const { return visited_; }

 private:
  using Members = absl::InlinedVector<int32_t, 4>;  // most units stay small

  // The units that one of the two searches has reached, in the order of discovery.
  struct Search {
    bool forward;
    std::vector<int32_t> reached = {};
    size_t expanded = 0;
    int64_t edges = 0;

    bool exhausted() const { return expanded == reached.size(); }
  };

  // Returns the exhausted search, or null if there may be a cycle.
  Search* FindExhausted(Search* forward, Search* backward);
  // Reaches the neighbors of a unit. Returns false if they close a cycle.
  bool Expand(int32_t unit, Search* search);
  bool Reach(int32_t node, int32_t from, Search* search);
  int32_t Mark(const Search& search) const { return 2 * search_ + (search.forward ? 1 : 0); }
  bool IsInside(int32_t unit) const { return inside_[unit] == search_; }
  // Moves the units, in list order, directly after `place` (for the head of the list: to the front).
  void MoveBehind(std::vector<int32_t> units, int32_t place);
  void Unlink(int32_t unit);
  // Calls visit(unit) for each use of the unit's results in another unit.
  template <typename F>
  void ForEachReader(int32_t unit, F&& visit) const;
  // Returns the units in topological order; among ready units, the one with the lowest `due` comes first.
  std::vector<int32_t> Order(const std::vector<int32_t>& due) const;
  void Renumber();

  const Pattern& pattern_;
  std::vector<int32_t> unit_;             // by node
  std::vector<Members> members_;          // by unit
  std::vector<int64_t> number_;           // by unit: ascending along the list
  std::vector<int32_t> next_, previous_;  // by unit; the last entry is the head of the list
  std::vector<int32_t> mark_, inside_;    // by unit: the last search that reached it, or started from it
  int32_t search_ = 0;
  int64_t first_ = 0, last_ = 0;  // numbers of the units that the current search is limited to
  int64_t visited_ = 0;
};

// Returns the values that the nodes (ascending) read and do not compute, in order of first use.
std::vector<ValueId> FindInputs(const Graph& graph, std::span<const int32_t> nodes);

}  // namespace onnxtrain
