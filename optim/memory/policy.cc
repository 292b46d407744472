#include "optim/memory/policy.h"

#include <algorithm>
#include <utility>

#include "backends/dataflow.h"
#include "backends/memory_plan.h"
#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "frontend/passes/eliminate.h"
#include "frontend/passes/rematerialize.h"
#include "frontend/passes/rewrite.h"
#include "optim/memory/search.h"
#include "optim/step/loss.h"
#include "optim/step/program/optimize.h"

namespace onnxtrain {
namespace {

// Returns the value whose bytes a view shares.
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
    std::vector<int32_t> order, start;  // start: by planned node, the index of its first member
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
  // Returns the fused node that computes node n; −1 for a dead node. A node whose outputs exist only inside a kernel
  // belongs to the kernel of its users, which have been visited.
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

  // Returns false if the kernel only yields side outputs of the node: their originals serve all users.
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

namespace {

// Limits the plans of a frontier that are packed, evenly over its peaks: fewer for large graphs, whose packing is slow.
std::vector<RecomputeChoice> ThinFrontier(std::vector<RecomputeChoice> choices, size_t nodes) {
  const size_t most = std::clamp<size_t>(60'000 / (nodes + 1), 8, 96);
  if (choices.size() <= most) return choices;
  std::vector<RecomputeChoice> kept;
  const double range = static_cast<double>(choices.front().peak - choices.back().peak);
  for (RecomputeChoice& choice : choices) {
    const double step = range / static_cast<double>(most - 1);
    const bool last = &choice == &choices.back();
    if (kept.empty() || last || static_cast<double>(kept.back().peak - choice.peak) >= step)
      kept.push_back(std::move(choice));
  }
  return kept;
}

// Returns true if a node that `kind` marks computes an operand.
bool HasOperand(const Graph& graph, const Node& node, const std::vector<bool>& kind) {
  return std::ranges::any_of(node.inputs, [&](ValueId v) {
    const int32_t n = v == kNoValue ? -1 : graph.value(v).node;
    return n >= 0 && kind[n];
  });
}

// Returns the nodes of the forward pass: those before the first node that joins a gradient with one of their results,
// without what is made of the seeds alone.
std::vector<bool> FindForward(const Graph& graph, const std::vector<bool>& of_gradient) {
  const std::vector<bool> running = FindLiveNodes(graph);
  std::vector<bool> forward(graph.nodes().size(), false);
  for (size_t n = 0; n < forward.size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (of_gradient[n] && running[n] && HasOperand(graph, node, forward)) break;
    forward[n] = !of_gradient[n] && running[n];
  }
  return forward;
}

// Appends the nodes of the backward pass in the planned order. Nodes that do not depend on a gradient and that one
// depends on (operands of an activation's derivative) come right before their first user: the plan may have put them
// into the forward pass.
void AppendBackward(const Graph& graph, const std::vector<bool>& forward, const std::vector<bool>& of_gradient,
                    const std::vector<int32_t>& planned, std::vector<int32_t>* order) {
  std::vector<bool> done = forward, serves_gradient(forward.size(), false);
  for (size_t n = forward.size(); n-- > 0;) {
    done[n] = done[n] || IsConstant(graph.nodes()[n]);
    if (!of_gradient[n] && !serves_gradient[n]) continue;
    for (ValueId v : graph.nodes()[n].inputs) {
      if (v != kNoValue && !graph.IsInput(v)) serves_gradient[graph.value(v).node] = true;
    }
  }
  std::vector<int32_t> open;
  const auto emit = [&](int32_t node) {
    open.assign(1, node);
    while (!open.empty()) {
      const int32_t n = open.back();
      const size_t before = open.size();
      for (ValueId v : graph.nodes()[n].inputs) {
        const int32_t p = v == kNoValue ? -1 : graph.value(v).node;
        if (p >= 0 && !done[p]) open.push_back(p);
      }
      if (open.size() > before) continue;
      open.pop_back();
      if (!done[n]) order->push_back(n);
      done[n] = true;
    }
  };
  for (int32_t n : planned) {
    if (!done[n] && (of_gradient[n] || !serves_gradient[n])) emit(n);
  }
}

}  // namespace

RecomputePlans RecomputeMemo::Get(const Graph& graph, const std::vector<size_t>& workspace,
                                  const std::function<RecomputePlans()>& make) {
  constexpr size_t kMost = 4;
  const auto found = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return entry.workspace == workspace && entry.graph == graph; });
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
  } else {
    entries_.push_front({graph, workspace, make()});
    if (entries_.size() > kMost) entries_.pop_back();
  }
  return entries_.front().plans;
}

RecomputePlanner::RecomputePlanner(const Graph& graph, const std::vector<size_t>& workspace, size_t alignment,
                                   RecomputeMemo* memo)
    : alignment_(alignment), memo_(memo) {
  const std::vector<bool> of_gradient = DependsOn(graph, kInverseDenominatorFeed);
  const std::vector<bool> forward = FindForward(graph, of_gradient);
  for (int32_t n = 0; n < std::ssize(graph.nodes()); ++n) {
    if (IsConstant(graph.nodes()[n]) || forward[n]) order_.push_back(n);
  }
  boundary_ = static_cast<int32_t>(order_.size());
  constexpr double kSlack = 0.02;
  const MemoryPlan plan =
      PlanMemory(graph, {.alignment = alignment, .workspace_bytes = workspace, .peak_slack = kSlack});
  AppendBackward(graph, forward, of_gradient, plan.order, &order_);
  graph_ = ReorderNodes(graph, order_);
  for (int32_t n : order_) workspace_.push_back(workspace[n]);
  for (Node node : graph_.nodes()) {
    node.op = CloneOperator(graph_, node);
    seconds_.push_back(NodeSeconds(graph_, node));
  }
}

bool RecomputePlanner::Applies() const { return boundary_ < std::ssize(graph_.nodes()); }

RecomputePlan RecomputePlanner::MakePlan(RecomputeSchedule recomputed) const {
  recomputed.resize(graph_.nodes().size());
  const std::vector<int32_t> with = FindCloneOwners(graph_, boundary_);
  for (size_t n = 0; n < with.size(); ++n) recomputed[n] = recomputed[with[n]];
  Rematerialized made = Rematerialize(graph_, boundary_, recomputed);
  PlanOptions options{.alignment = alignment_};
  for (int32_t n : made.origin) options.workspace_bytes.push_back(workspace_[n]);
  const MemoryPlan memory = PlanMemory(made.graph, options);
  RecomputePlan plan{.arena = memory.arena_bytes, .lower_bound = memory.lower_bound};
  std::vector<bool> ran(graph_.nodes().size(), false);
  for (int32_t n : memory.order) {
    const int32_t origin = made.origin[n];
    const double seconds = NodeSeconds(made.graph, made.graph.nodes()[n]);
    plan.seconds += seconds;
    if (ran[origin] && seconds > 0) {
      plan.extra_seconds += seconds;
      ++plan.repeated;
    }
    ran[origin] = true;
  }
  plan.recomputed = std::move(recomputed);
  return plan;
}

RecomputePlan RecomputePlanner::Plan(RecomputeMode mode) const {
  if (mode == RecomputeMode::kNone || !Applies()) return MakePlan({});
  const RecomputeCostModel model = Model();
  return MakePlan(mode == RecomputeMode::kSqrt ? RecomputeSqrt(model).recomputed : RecomputeCheap(model).recomputed);
}

const std::vector<RecomputePlan>& RecomputePlanner::Frontier() const {
  const auto make = [this] { return std::make_shared<const std::vector<RecomputePlan>>(MakeFrontier()); };
  if (frontier_ == nullptr) frontier_ = memo_ == nullptr ? make() : memo_->Get(graph_, workspace_, make);
  return *frontier_;
}

Graph RecomputePlanner::PlannedGraph(const RecomputePlan& plan) const {
  return Dce(Rematerialize(graph_, boundary_, plan.recomputed).graph);
}

std::vector<RecomputePlan> RecomputePlanner::MakeFrontier() const {
  std::vector<RecomputePlan> plans;
  plans.push_back(Plan(RecomputeMode::kNone));
  if (!Applies()) return plans;
  const RecomputeCostModel model = Model();
  for (const RecomputeChoice& choice : ThinFrontier(RecomputeFrontier(model), graph_.nodes().size())) {
    RecomputePlan plan = MakePlan(choice.recomputed);
    if (plan.arena < plans.back().arena) plans.push_back(std::move(plan));
  }
  // Drops plans that a later one beats in both time and memory.
  std::vector<RecomputePlan> best;
  for (RecomputePlan& plan : plans) {
    while (!best.empty() && best.back().extra_seconds >= plan.extra_seconds && best.back().arena >= plan.arena)
      best.pop_back();
    best.push_back(std::move(plan));
  }
  return best;
}

absl::StatusOr<RecomputePlan> ChooseRecompute(const RecomputePlanner& planner, RecomputeMode mode, size_t limit,
                                              size_t* smallest) {
  const bool free_to_choose = mode == RecomputeMode::kAuto || mode == RecomputeMode::kBudget;
  RecomputePlan first = planner.Plan(free_to_choose ? RecomputeMode::kNone : mode);
  *smallest = first.arena;
  if (first.arena <= limit) return first;
  if (!free_to_choose || !planner.Applies()) return absl::ResourceExhaustedError("");
  const std::vector<RecomputePlan>& plans = planner.Frontier();
  for (const RecomputePlan& plan : plans) {
    if (plan.arena <= limit) return plan;
  }
  *smallest = plans.back().arena;
  return absl::ResourceExhaustedError("");
}

}  // namespace onnxtrain
