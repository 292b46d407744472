#include "backends/unit_graph.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>

namespace onnxtrain {

UnitGraph::UnitGraph(const Pattern& pattern)
    : pattern_(pattern), unit_(pattern.graph().nodes().size()), members_(unit_.size()), number_(unit_.size() + 1) {
  std::iota(unit_.begin(), unit_.end(), 0);
  const auto head = static_cast<int32_t>(unit_.size());
  next_.resize(unit_.size() + 1);
  previous_.resize(unit_.size() + 1);
  mark_.assign(unit_.size(), 0);
  inside_.assign(unit_.size(), 0);
  for (int32_t n = 0; n <= head; ++n) {
    next_[n] = n == head ? 0 : n + 1;
    previous_[n] = n == 0 ? head : n - 1;
    if (n < head) members_[n] = {n};
  }
  Renumber();
}

bool UnitGraph::TryMerge(std::span<const int32_t> units) {
  ++search_;
  const auto by_number = [&](int32_t a, int32_t b) { return number_[a] < number_[b]; };
  const auto [first, last] = std::ranges::minmax_element(units, by_number);
  first_ = number_[*first];
  last_ = number_[*last];
  for (int32_t u : units) inside_[u] = search_;
  Search forward{.forward = true}, backward{.forward = false};
  const auto expand_all = [&](Search* search) {
    return std::ranges::all_of(units, [&](int32_t u) { return Expand(u, search); });
  };
  if (!expand_all(&backward)) return false;
  if (!backward.exhausted() && !expand_all(&forward)) return false;
  Search* exhausted = FindExhausted(&forward, &backward);
  if (exhausted == nullptr) return false;
  // Moves the predecessors of the units before the first unit, or their successors after the last; the merged unit
  // takes the place of that unit.
  const int32_t place = exhausted->forward ? *last : *first, kept = units.front();
  MoveBehind(std::move(exhausted->reached), exhausted->forward ? place : previous_[place]);
  if (place != kept) MoveBehind({kept}, place);
  for (int32_t u : units) {
    if (u == kept) continue;
    Unlink(u);
    for (int32_t n : members_[u]) unit_[n] = kept;
    members_[kept].insert(members_[kept].end(), members_[u].begin(), members_[u].end());
    members_[u].clear();
  }
  std::sort(members_[kept].begin(), members_[kept].end());
  return true;
}

UnitGraph::Search* UnitGraph::FindExhausted(Search* forward, Search* backward) {
  const int64_t begin = visited_;
  while (!forward->exhausted() && !backward->exhausted()) {
    Search* search = forward->edges < backward->edges ? forward : backward;
    if (visited_ - begin > kMaxSearch || !Expand(search->reached[search->expanded++], search)) return nullptr;
  }
  return backward->exhausted() ? backward : forward;
}

bool UnitGraph::Expand(int32_t unit, Search* search) {
  const Graph& graph = pattern_.graph();
  for (int32_t n : members_[unit]) {
    const Node& node = graph.nodes()[n];
    for (ValueId v : search->forward ? node.outputs : node.inputs) {
      if (!search->forward) {
        if (v != kNoValue && !graph.IsInput(v) && !Reach(graph.value(v).node, unit, search)) return false;
        continue;
      }
      for (int32_t user : pattern_.users(v)) {
        if (!Reach(user, unit, search)) return false;
      }
    }
  }
  return true;
}

bool UnitGraph::Reach(int32_t node, int32_t from, Search* search) {
  const int32_t to = unit_[node];
  ++search->edges;
  ++visited_;
  if (IsInside(to)) return IsInside(from);
  if (number_[to] < first_ || number_[to] > last_ || mark_[to] == Mark(*search)) return true;
  if (mark_[to] / 2 == search_) return false;  // both searches have reached it: a cycle
  mark_[to] = Mark(*search);
  search->reached.push_back(to);
  return true;
}

void UnitGraph::Unlink(int32_t unit) {
  next_[previous_[unit]] = next_[unit];
  previous_[next_[unit]] = previous_[unit];
}

void UnitGraph::MoveBehind(std::vector<int32_t> units, int32_t place) {
  std::ranges::sort(units, {}, [&](int32_t u) { return number_[u]; });
  for (int32_t u : units) Unlink(u);
  const auto head = static_cast<int32_t>(unit_.size());
  const int64_t below = number_[place];
  const int64_t above = next_[place] == head ? std::numeric_limits<int64_t>::max() : number_[next_[place]];
  const int64_t gap = (above - below) / (std::ssize(units) + 1);
  for (int32_t u : units) {
    previous_[u] = place;
    next_[u] = next_[place];
    previous_[next_[u]] = next_[place] = u;
    number_[u] = number_[place] + gap;
    place = u;
  }
  if (gap == 0) Renumber();
}

void UnitGraph::Renumber() {
  const auto head = static_cast<int32_t>(unit_.size());
  const int64_t gap = std::numeric_limits<int64_t>::max() / (std::ssize(unit_) + 2);
  number_[head] = 0;
  for (int32_t u = next_[head]; u != head; u = next_[u]) number_[u] = number_[previous_[u]] + gap;
}

template <typename F>
void UnitGraph::ForEachReader(int32_t unit, F&& visit) const {
  for (int32_t n : members_[unit]) {
    for (ValueId v : pattern_.graph().nodes()[n].outputs) {
      for (int32_t r : pattern_.users(v)) {
        if (unit_[r] != unit) visit(unit_[r]);
      }
    }
  }
}

std::vector<int32_t> UnitGraph::Order(const std::vector<int32_t>& due) const {
  const auto count = static_cast<int32_t>(unit_.size());
  std::vector<int32_t> missing(count, 0);  // reads of other units that have not run, one per use
  for (int32_t u = 0; u < count; ++u) ForEachReader(u, [&](int32_t reader) { ++missing[reader]; });
  using Ready = std::pair<int32_t, int32_t>;  // when it is due, unit
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
  for (int32_t u = 0; u < count; ++u) {
    if (!members_[u].empty() && missing[u] == 0) ready.emplace(due[u], u);
  }
  std::vector<int32_t> order;
  order.reserve(count);
  while (!ready.empty()) {
    const int32_t unit = ready.top().second;
    ready.pop();
    order.push_back(unit);
    ForEachReader(unit, [&](int32_t reader) {
      if (--missing[reader] == 0) ready.emplace(due[reader], reader);
    });
  }
  return order;
}

std::vector<int32_t> UnitGraph::Order() const {
  std::vector<int32_t> due(unit_.size(), 0);
  for (size_t u = 0; u < due.size(); ++u) {
    if (!members_[u].empty()) due[u] = members_[u].back();
  }
  const std::vector<int32_t> order = Order(due);
  for (auto unit = order.rbegin(); unit != order.rend(); ++unit)
    ForEachReader(*unit, [&](int32_t reader) { due[*unit] = std::min(due[*unit], due[reader]); });
  return Order(due);
}

bool UnitGraph::IsReadOutside(ValueId v) const {
  const int32_t own = unit_[pattern_.graph().value(v).node];
  return pattern_.IsOutput(v) || std::ranges::any_of(pattern_.users(v), [&](int32_t n) { return unit_[n] != own; });
}

std::vector<ValueId> FindInputs(const Graph& graph, std::span<const int32_t> nodes) {
  std::vector<ValueId> inputs;
  for (int32_t n : nodes) {
    for (ValueId v : graph.nodes()[n].inputs) {
      const int32_t p = v == kNoValue ? -1 : graph.value(v).node;
      const bool inside = v == kNoValue || (p >= 0 && std::binary_search(nodes.begin(), nodes.end(), p));
      if (!inside && std::find(inputs.begin(), inputs.end(), v) == inputs.end()) inputs.push_back(v);
    }
  }
  return inputs;
}

}  // namespace onnxtrain
