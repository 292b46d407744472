#include "backends/output_notices.h"

#include <algorithm>
#include <map>
#include <utility>

namespace onnxtrain {
namespace {

using Where = Place::Where;
using Bound = std::pair<Where, int32_t>;  // memory of a graph input or output

Bound MemoryOf(const Graph& graph, size_t output) {
  const ValueId into = graph.outputs()[output].into;
  if (into != kNoValue) return {Where::kInput, graph.value(into).index};
  return {Where::kOutput, static_cast<int32_t>(output)};
}

// Returns how many nodes have run when each memory is touched for the last time.
std::map<Bound, size_t> FindLastTouches(const Graph& graph, const MemoryPlan& plan) {
  std::map<Bound, size_t> last;
  const auto touch = [&](const Place& place, size_t nodes) {
    if (place.where != Where::kInput && place.where != Where::kOutput) return;
    size_t& at = last[{place.where, place.index}];
    at = std::max(at, nodes);
  };
  for (size_t i = 0; i < plan.order.size(); ++i) {
    const Node& node = graph.nodes()[plan.order[i]];
    for (const auto& values : {node.inputs, node.outputs}) {
      for (ValueId v : values) {
        if (v != kNoValue) touch(plan.places[v], i + 1);
      }
    }
  }
  for (const Copy& copy : plan.copies) {
    touch(copy.from, kAfterCopies);
    touch(copy.to, kAfterCopies);
  }
  return last;
}

}  // namespace

std::vector<OutputNotice> PlanNotices(const Graph& graph, const MemoryPlan& plan,
                                      std::span<const std::vector<size_t>> groups) {
  const std::map<Bound, size_t> last = FindLastTouches(graph, plan);
  std::vector<OutputNotice> notices;
  for (size_t g = 0; g < groups.size(); ++g) {
    size_t nodes = 0;
    for (size_t output : groups[g]) {
      const auto touched = last.find(MemoryOf(graph, output));
      if (touched != last.end()) nodes = std::max(nodes, touched->second);
    }
    notices.push_back({nodes, g});
  }
  std::ranges::stable_sort(notices, {}, &OutputNotice::nodes);
  return notices;
}

}  // namespace onnxtrain
