#include "backends/torch/batches.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace onnxtrain::aten {
namespace {

// A set of byte ranges of the arena and of whole bound buffers.
class TouchedBytes {
 public:
  bool Overlaps(const Place& place, size_t bytes) const {
    const auto after = ends_.lower_bound({KeyOf(place), place.offset + bytes});
    if (after == ends_.begin()) return false;
    const auto& [begin, end] = *std::prev(after);
    return begin.first == KeyOf(place) && end > place.offset;
  }

  void Add(const Place& place, size_t bytes) {
    size_t begin = place.offset, end = place.offset + bytes;
    for (auto it = ends_.lower_bound({KeyOf(place), end}); it != ends_.begin();) {
      --it;
      if (it->first.first != KeyOf(place) || it->second < begin) break;
      begin = std::min(begin, it->first.second);
      end = std::max(end, it->second);
      it = ends_.erase(it);
    }
    ends_[{KeyOf(place), begin}] = end;
  }

 private:
  using Key = std::pair<Place::Where, int32_t>;
  static Key KeyOf(const Place& place) { return {place.where, place.where == Place::Where::kArena ? 0 : place.index}; }

  std::map<std::pair<Key, size_t>, size_t> ends_;  // by begin
};

// Bytes that the current sequence of independent nodes reads and writes.
class Touched {
 public:
  Touched(const Graph& graph, const MemoryPlan& plan) : graph_(graph), plan_(plan) {}

  // Adds a node to the sequence and returns true, or returns false if it depends on an earlier one.
  bool TryAdd(const Node& node) {
    const auto touches = [&](const ValueIds& values, const TouchedBytes& bytes) {
      return std::ranges::any_of(values, [&](ValueId v) { return IsStored(v) && bytes.Overlaps(At(v), Size(v)); });
    };
    if (touches(node.inputs, written_) || touches(node.outputs, written_) || touches(node.outputs, read_)) return false;
    Add(node.inputs, &read_);
    Add(node.outputs, &written_);
    return true;
  }

  void Clear() { read_ = written_ = {}; }

 private:
  void Add(const ValueIds& values, TouchedBytes* bytes) const {
    for (ValueId v : values)
      if (IsStored(v)) bytes->Add(At(v), Size(v));
  }
  bool IsStored(ValueId v) const { return v != kNoValue && At(v).where != Place::Where::kNone; }
  const Place& At(ValueId v) const { return plan_.places[v]; }
  size_t Size(ValueId v) const { return graph_.type(v).bytes(); }

  const Graph& graph_;
  const MemoryPlan& plan_;
  TouchedBytes read_, written_;
};

}  // namespace

std::vector<std::vector<size_t>> FindIndependentRuns(const Graph& graph, const MemoryPlan& plan,
                                                     std::span<const int32_t> order, bool (*may_batch)(const Node&)) {
  std::vector<std::vector<size_t>> runs(1);
  Touched touched(graph, plan);
  const auto start = [&] {
    if (runs.back().size() > 1) runs.emplace_back();
    runs.back().clear();
    touched.Clear();
  };
  for (size_t i = 0; i < order.size(); ++i) {
    const Node& node = graph.nodes()[order[i]];
    if (!may_batch(node)) {
      start();
      continue;
    }
    if (!touched.TryAdd(node)) {
      start();
      touched.TryAdd(node);
    }
    runs.back().push_back(i);
  }
  start();
  runs.pop_back();
  return runs;
}

}  // namespace onnxtrain::aten
