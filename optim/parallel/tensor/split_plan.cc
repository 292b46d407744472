#include "optim/parallel/tensor/split_plan.h"

#include <algorithm>
#include <utility>

#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMaxBlocks = 4;  // that are tried

bool IsWeight(const Graph& graph, ValueId v) {
  if (!graph.IsInput(v)) return false;
  const InputKind kind = graph.inputs()[graph.value(v).index].kind;
  return kind == InputKind::kParameter || kind == InputKind::kFrozen || kind == InputKind::kState;
}

// Values that depend on weights and constants alone.
std::vector<bool> FindWeightValues(const Graph& graph) {
  std::vector<bool> of_weights(graph.values().size());
  for (const GraphInput& input : graph.inputs()) of_weights[input.value] = IsWeight(graph, input.value);
  for (const Node& node : graph.nodes()) {
    const bool all = std::ranges::all_of(node.inputs, [&](ValueId v) { return v == kNoValue || of_weights[v]; });
    for (const ValueId v : node.outputs) of_weights[v] = all && !node.inputs.empty();
  }
  return of_weights;
}

class Planner {
 public:
  Planner(const Graph& graph, std::span<const ValueId> results, int ranks,
          const std::function<bool(const Node& gather)>& splits_table)
      : graph_(graph),
        splits_table_(splits_table),
        users_(ComputeUsers(graph)),
        of_weights_(FindWeightValues(graph)),
        is_result_(graph.values().size()) {
    plan_.ranks = ranks;
    for (const ValueId v : results) is_result_[v] = true;
  }

  SplitPlan Plan() {
    for (size_t n = 0; n < graph_.nodes().size(); ++n) GrowFrom(static_cast<int32_t>(n));
    for (size_t n = 0; n < graph_.nodes().size(); ++n) SplitTable(static_cast<int32_t>(n));
    return std::move(plan_);
  }

 private:
  // Divides the columns of a product with a weight, and what follows from it.
  void GrowFrom(int32_t n) {
    const Node& node = graph_.nodes()[n];
    if (node.op == "Gather" || plan_.nodes.contains(n) || node.inputs.size() < 2) return;
    for (size_t i = 0; i < 2; ++i) {
      if (node.inputs[i] == kNoValue || node.inputs[1 - i] == kNoValue) return;
      if (!of_weights_[node.inputs[i]] || of_weights_[node.inputs[1 - i]]) continue;
      const std::optional<int> axis = FindWeightAxis(graph_, node, i);
      if (!axis) continue;
      for (int64_t blocks = 1; blocks <= kMaxBlocks; ++blocks) {
        if (Try([&] { return Assign(node.outputs[0], {*axis, blocks}); })) return;
      }
    }
  }

  // Divides the rows of an embedding.
  void SplitTable(int32_t n) {
    const Node& node = graph_.nodes()[n];
    if (node.op != "Gather" || plan_.nodes.contains(n) || !IsWeight(graph_, node.inputs[0])) return;
    if (!splits_table_(node)) return;
    Try([&] { return Assign(node.inputs[0], {static_cast<int>(node.attrs.Int("axis")), 1}); });
  }

  // Runs `grow`, and takes back what it has divided where it fails.
  template <typename Grow>
  bool Try(const Grow& grow) {
    SplitPlan before = plan_;
    if (grow()) return true;
    plan_ = std::move(before);
    return false;
  }

  bool Assign(ValueId v, const AxisSplit& split) {
    const auto found = plan_.values.find(v);
    if (found != plan_.values.end()) return found->second == split;
    if (!CanSplit(graph_.type(v).shape, split, plan_.ranks) || IsTerm(v)) return false;
    plan_.values.emplace(v, split);
    if (is_result_[v]) plan_.joined.insert(v);
    if (!graph_.IsInput(v) && !AddProducer(v, split)) return false;
    return std::ranges::all_of(users_[v], [&](int32_t user) { return AddUser(user, v, split); });
  }

  // The whole of it is a sum over the ranks.
  bool IsTerm(ValueId v) const {
    if (graph_.IsInput(v)) return false;
    const auto producer = plan_.nodes.find(graph_.value(v).node);
    return producer != plan_.nodes.end() && producer->second.sums;
  }

  bool AddProducer(ValueId v, const AxisSplit& split) {
    const auto index = static_cast<size_t>(graph_.value(v).index);
    const int32_t n = graph_.value(v).node;
    const auto found = plan_.nodes.find(n);
    if (found != plan_.nodes.end()) return found->second.outputs[index] == split;
    return Add(n, SplitNode(graph_, graph_.nodes()[n], {true, index}, split, plan_.ranks));
  }

  bool AddUser(int32_t n, ValueId v, const AxisSplit& split) {
    const Node& node = graph_.nodes()[n];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != v) continue;
      const auto found = plan_.nodes.find(n);
      if (found == plan_.nodes.end()) {
        if (!Add(n, SplitNode(graph_, node, {false, i}, split, plan_.ranks))) return false;
      } else if (found->second.inputs[i] != split) {
        return false;
      }
    }
    return true;
  }

  bool Add(int32_t n, const std::optional<NodeSplit>& split) {
    if (!split) return false;
    const Node& node = graph_.nodes()[n];
    plan_.nodes.emplace(n, *split);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (split->outputs[o] && !Assign(node.outputs[o], *split->outputs[o])) return false;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId v = node.inputs[i];
      if (v == kNoValue) continue;
      const bool fits = split->inputs[i] ? Ask(v, *split->inputs[i]) : !plan_.values.contains(v);
      if (!fits) return false;
    }
    return true;
  }

  // Divides an operand, or leaves it whole: every rank then takes its part.
  bool Ask(ValueId v, const AxisSplit& split) {
    const auto found = plan_.values.find(v);
    if (found != plan_.values.end()) return found->second == split;
    const bool whole = IsTerm(v) || (graph_.IsInput(v) ? !IsWeight(graph_, v) : graph_.FindConstant(v) != nullptr);
    if (!whole) Try([&] { return Assign(v, split); });
    return true;
  }

  const Graph& graph_;
  const std::function<bool(const Node& gather)>& splits_table_;
  const Users users_;
  const std::vector<bool> of_weights_;
  std::vector<bool> is_result_;
  SplitPlan plan_;
};

}  // namespace

SplitPlan PlanSplit(const Graph& forward, std::span<const ValueId> results, int ranks,
                    const std::function<bool(const Node& gather)>& splits_table) {
  return Planner(forward, results, ranks, splits_table).Plan();
}

bool IsLargeTable(const Graph& forward, const Node& gather) {
  return forward.type(gather.inputs[0]).shape[gather.attrs.Int("axis")] >= forward.type(gather.inputs[1]).elements();
}

}  // namespace onnxtrain
