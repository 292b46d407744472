#include "optim/memory/apply.h"

#include <algorithm>

#include "frontend/ops/row.h"
#include "frontend/passes/dce.h"
#include "frontend/passes/rematerialize.h"
#include "frontend/passes/reorder.h"

namespace onnxtrain {
namespace {

// The value whose bytes a view shows.
ValueId SkipViews(const Graph& graph, ValueId v) {
  const Node* node = graph.producer(v);
  const OpRow* row = node == nullptr ? nullptr : FindOp(node->op);
  return row != nullptr && row->view ? SkipViews(graph, node->inputs[0]) : v;
}

class ScheduleMapper {
 public:
  ScheduleMapper(const Graph& legal, const FusedGraph& fused)
      : legal_(legal), fused_(fused), kernel_(legal.nodes().size(), -1) {
    const auto users = ComputeUsers(legal);
    for (int32_t n = static_cast<int32_t>(kernel_.size()); n-- > 0;) kernel_[n] = FindKernel(users, n);
  }

  Graph Apply(const RecomputePlanner& planner, const RecomputeSchedule& recomputed) const {
    std::vector<std::vector<int32_t>> members(fused_.graph.nodes().size());
    for (int32_t n = 0; n < std::ssize(kernel_); ++n) {
      if (kernel_[n] >= 0) members[kernel_[n]].push_back(n);
    }
    std::vector<int32_t> order, start;  // start: by planned node, where its members begin
    for (int32_t kernel : planner.order()) {
      start.push_back(static_cast<int32_t>(order.size()));
      order.insert(order.end(), members[kernel].begin(), members[kernel].end());
    }
    start.push_back(static_cast<int32_t>(order.size()));
    std::vector<Clones> clones(order.size());
    for (size_t p = 0; p < planner.order().size(); ++p) {
      for (int32_t i = start[p]; i < start[p + 1]; ++i) {
        if (HasClones(order[i])) clones[i] = MoveClones(recomputed[p], start);
      }
    }
    return Dce(Rematerialize(ReorderNodes(legal_, order), start[planner.boundary()], clones).graph);
  }

 private:
  // The fused node that computes node n; −1 for a dead node. A node whose outputs exist inside a kernel only belongs to
  // the kernel of its users, which have been visited.
  int32_t FindKernel(const Users& users, int32_t n) const {
    const Node& node = legal_.nodes()[n];
    const OpRow* row = FindOp(node.op);
    for (ValueId v : node.outputs) {
      ValueId now = fused_.values[v];
      if (now == kNoValue) continue;
      if (row == nullptr || !row->view) now = SkipViews(fused_.graph, now);
      return fused_.graph.value(now).node;
    }
    for (ValueId v : node.outputs) {
      if (!users[v].empty()) return kernel_[users[v][0]];
    }
    return -1;
  }

  // False where the kernel gives side outputs of the node only: their originals serve all users.
  bool HasClones(int32_t n) const {
    const auto& outputs = legal_.nodes()[n].outputs;
    const auto is_side = [&](ValueId v) {
      const ValueId now = fused_.values[v];
      return now != kNoValue && IsSideOutput(fused_.graph, SkipViews(fused_.graph, now));
    };
    return !std::all_of(outputs.begin(), outputs.end(), is_side);
  }

  static Clones MoveClones(const Clones& planned, const std::vector<int32_t>& start) {
    Clones moved;
    for (size_t i = 0; i < planned.count(); ++i) moved.Add(start[planned[i]]);
    return moved;
  }

  const Graph& legal_;
  const FusedGraph& fused_;
  std::vector<int32_t> kernel_;  // by node of the legalized graph
};

}  // namespace

Graph ApplyRecompute(const Graph& legal, const FusedGraph& fused, const RecomputePlanner& planner,
                     const RecomputeSchedule& recomputed) {
  return ScheduleMapper(legal, fused).Apply(planner, recomputed);
}

}  // namespace onnxtrain
