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

// Returns, for each bound memory, the positions of the first and the last node that touch it.
std::map<Bound, OutputRange> FindTouches(const Graph& graph, const MemoryPlan& plan) {
  std::map<Bound, OutputRange> touches;
  const auto touch = [&](const Place& place, size_t at) {
    if (place.where != Where::kInput && place.where != Where::kOutput) return;
    OutputRange& range = touches.try_emplace({place.where, place.index}, OutputRange{at, at}).first->second;
    range = {std::min(range.first, at), std::max(range.last, at)};
  };
  for (size_t i = 0; i < plan.order.size(); ++i) {
    const Node& node = graph.nodes()[plan.order[i]];
    for (const auto& values : {node.inputs, node.outputs}) {
      for (ValueId v : values) {
        if (v != kNoValue) touch(plan.places[v], i);
      }
    }
  }
  for (const Copy& copy : plan.copies) {
    touch(copy.from, plan.order.size());
    touch(copy.to, plan.order.size());
  }
  return touches;
}

}  // namespace

std::vector<OutputNotice> PlanNotices(const Graph& graph, const MemoryPlan& plan,
                                      std::span<const std::vector<size_t>> groups) {
  const std::map<Bound, OutputRange> touches = FindTouches(graph, plan);
  std::vector<OutputNotice> notices;
  for (size_t g = 0; g < groups.size(); ++g) {
    size_t nodes = 0;
    for (size_t output : groups[g]) {
      const auto touched = touches.find(MemoryOf(graph, output));
      if (touched != touches.end()) nodes = std::max(nodes, touched->second.last + 1);
    }
    notices.push_back({nodes > plan.order.size() ? kAfterCopies : nodes, g});
  }
  std::ranges::stable_sort(notices, {}, &OutputNotice::nodes);
  return notices;
}

std::vector<OutputRange> PlanOutputRanges(const Graph& graph, const MemoryPlan& plan) {
  const std::map<Bound, OutputRange> touches = FindTouches(graph, plan);
  std::vector<OutputRange> ranges;
  for (size_t output = 0; output < graph.outputs().size(); ++output) {
    const auto touched = touches.find(MemoryOf(graph, output));
    ranges.push_back(touched != touches.end() ? touched->second : OutputRange{0, plan.order.size()});
  }
  return ranges;
}

}  // namespace onnxtrain
