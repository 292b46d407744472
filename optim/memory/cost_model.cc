#include "optim/memory/cost_model.h"

#include <algorithm>

namespace onnxtrain {
namespace {

int64_t Aligned(size_t bytes) { return static_cast<int64_t>((bytes + 63) / 64 * 64); }

void AddOnce(std::vector<ValueId>* list, ValueId v) {
  if (std::find(list->begin(), list->end(), v) == list->end()) list->push_back(v);
}

}  // namespace

std::vector<int32_t> FindCloneOwners(const Graph& graph, int32_t boundary) {
  const auto readers = ComputeUsers(graph);
  std::vector<int32_t> with(graph.nodes().size());
  for (int32_t n = 0; n < std::ssize(with); ++n) {
    const Node& node = graph.nodes()[n];
    const OpRow* row = FindOp(node.op);
    const auto& readers_of = readers[node.outputs[0]];
    const bool of_weights =
        row != nullptr && row->derive && std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) {
          return v != kNoValue && graph.IsInput(v) && graph.inputs()[graph.value(v).index].kind != InputKind::kFeed;
        });
    with[n] = of_weights && readers_of.size() == 1 && readers_of[0] < boundary ? readers_of[0] : n;
  }
  return with;
}

double RecomputeTrace::Excess(int64_t target) const {
  double sum = 0;
  for (int64_t bytes : live) sum += static_cast<double>(std::max<int64_t>(0, bytes - target));
  return sum;
}

int32_t RecomputeTrace::FindStep(int32_t node) const {
  const auto before = [node](const Run& run) { return run.backward < node; };
  return static_cast<int32_t>(std::partition_point(runs.begin(), runs.end(), before) - runs.begin());
}

RecomputeCostModel::RecomputeCostModel(const Graph& graph, RecomputeCosts costs)
    : flow_(AnalyzeDataflow(graph, true)),
      costs_(std::move(costs)),
      clone_owner_(FindCloneOwners(graph, costs_.boundary)),
      units_(graph.nodes().size()),
      bytes_(graph.values().size(), 0),
      side_(graph.values().size(), false) {
  MakeUnits();
  MarkBackwardReaders();
  for (int32_t n = 0; n < std::ssize(units_); ++n) {
    if (!units_[n].runs) continue;
    total_seconds_ += costs_.seconds[n];
    const bool repeatable =
        clone_owner_[n] == n && !units_[n].results.empty() && flow_.rows[n]->recompute != Recompute::kNever;
    if (n < costs_.boundary && repeatable) candidates_.push_back(n);
  }
}

void RecomputeCostModel::MakeUnits() {
  for (size_t n = 0; n < units_.size(); ++n) {
    const Node& node = graph().nodes()[n];
    Unit& unit = units_[n];
    if (flow_.rows[n] == nullptr || flow_.root[node.outputs[0]] != node.outputs[0]) continue;
    unit.runs = true;
    for (ValueId v : node.inputs) {
      if (v == kNoValue) continue;
      const ValueId root = flow_.root[v];
      if (flow_.in_arena(root) && producer(root) >= 0) AddOnce(&unit.operands, root);
    }
    for (ValueId v : node.outputs) {
      unit.output |= flow_.is_output[v];
      if (!flow_.in_arena(v)) continue;
      bytes_[v] = Aligned(graph().type(v).bytes());
      side_[v] = IsSideOutput(graph(), v);
      unit.results.push_back(v);
    }
    size_ += 1 + unit.operands.size() + unit.results.size();
  }
}

void RecomputeCostModel::MarkBackwardReaders() {
  for (size_t n = costs_.boundary; n < units_.size(); ++n) {
    for (ValueId r : units_[n].operands) units_[producer(r)].read_by_backward |= !side_[r];
  }
}

struct RecomputeCostModel::BackwardRuns {
  std::vector<RecomputeTrace::Run> runs;
  std::vector<uint8_t> read;        // by forward node: whether the backward pass reads its original
  std::vector<uint8_t> recomputed;  // by forward node: whether it has a clone
};

// Lists the backward pass in order, each clone right before the first node that needs it, operands first.
RecomputeCostModel::BackwardRuns RecomputeCostModel::MakeBackwardRuns(const RecomputeSchedule& recomputed) const {
  BackwardRuns made{.read = std::vector<uint8_t>(costs_.boundary, 0),
                    .recomputed = std::vector<uint8_t>(costs_.boundary, 0)};
  std::vector<uint8_t> current(costs_.boundary, 0);  // the clone that is live
  std::vector<int32_t> open;
  for (int32_t backward = costs_.boundary; backward < std::ssize(units_); ++backward) {
    if (!units_[backward].runs) continue;
    open.assign(1, backward);
    while (!open.empty()) {
      const int32_t n = open.back();
      const size_t before = open.size();
      for (ValueId r : units_[n].operands) {
        const int32_t of = producer(r);
        if (of >= costs_.boundary) continue;
        const size_t serving = CloneIndexForOperand(recomputed, r, backward);
        if (serving == 0) made.read[of] = 1;
        if (serving > 0 && serving != current[of]) open.push_back(of);
      }
      if (open.size() > before) continue;
      open.pop_back();
      if (n < costs_.boundary) {
        const size_t serving = At(recomputed, n, backward);
        if (current[n] == serving) continue;
        current[n] = static_cast<uint8_t>(serving);
        made.recomputed[n] = 1;
      }
      made.runs.push_back({n, backward});
    }
  }
  return made;
}

// Lists the runs of both passes. A node without readers of its original runs only as a clone.
void RecomputeCostModel::MakeRuns(const BackwardRuns& backward, RecomputeTrace* t) const {
  std::vector<uint8_t> wanted = backward.read;
  for (int32_t n = costs_.boundary; n-- > 0;) {
    const Unit& unit = units_[n];
    wanted[n] = unit.runs && (wanted[n] || unit.output);
    if (!wanted[n]) continue;
    for (ValueId r : unit.operands) wanted[producer(r)] = 1;
  }
  t->runs.clear();
  t->extra_seconds = 0;
  for (int32_t n = 0; n < costs_.boundary; ++n) {
    if (wanted[n]) t->runs.push_back({n, -1});
    if (backward.recomputed[n] && !wanted[n]) t->extra_seconds -= costs_.seconds[n];
  }
  t->backward = static_cast<int32_t>(t->runs.size());
  t->runs.insert(t->runs.end(), backward.runs.begin(), backward.runs.end());
  for (const RecomputeTrace::Run& run : backward.runs) t->extra_seconds += run.clone() ? costs_.seconds[run.node] : 0;
}

void RecomputeCostModel::ComputeLiveRanges(const RecomputeSchedule& recomputed, RecomputeTrace* t) const {
  std::vector<int32_t> original(bytes_.size(), -1);
  for (auto* list : {&t->made, &t->reads, &t->first_read}) list->clear();
  t->live_ranges.clear();
  t->newest.assign(bytes_.size(), -1);
  const auto end = static_cast<int32_t>(t->runs.size());
  for (int32_t step = 0; step < end; ++step) {
    const RecomputeTrace::Run& run = t->runs[step];
    t->made.push_back(static_cast<int32_t>(t->live_ranges.size()));
    t->first_read.push_back(static_cast<int32_t>(t->reads.size()));
    for (ValueId r : units_[run.node].operands) {
      const int32_t range =
          run.backward >= 0 && CloneIndexForOperand(recomputed, r, run.backward) > 0 ? t->newest[r] : original[r];
      t->reads.push_back(range);
      t->live_ranges[range].last = std::max(t->live_ranges[range].last, step);
      if (run.backward < 0) t->live_ranges[range].last_forward_read = step;
    }
    for (ValueId r : units_[run.node].results) {
      if (!run.clone()) original[r] = static_cast<int32_t>(t->live_ranges.size());
      t->live_ranges.push_back({r, step, !run.clone() && flow_.is_output[r] ? end : step, run.backward < 0 ? step : -1,
                                t->newest[r], run.clone()});
      t->newest[r] = static_cast<int32_t>(t->live_ranges.size()) - 1;
    }
  }
  t->made.push_back(static_cast<int32_t>(t->live_ranges.size()));
  t->first_read.push_back(static_cast<int32_t>(t->reads.size()));
}

// Returns true if the result can reuse the buffer of an operand of the same size that dies.
bool RecomputeCostModel::CanReuseOperand(const RecomputeTrace& t, int32_t step, ValueId out) const {
  return std::any_of(t.reads.begin() + t.first_read[step], t.reads.begin() + t.first_read[step + 1], [&](int32_t read) {
    const RecomputeTrace::LiveRange& range = t.live_ranges[read];
    return bytes_[range.root] == bytes_[out] && range.last == step &&
           flow_.CanOverwrite(t.runs[step].node, out, range.root);
  });
}

// Calls f(range, from, to) for every live range that allocates bytes, in the steps [from, to).
template <typename F>
void RecomputeCostModel::ForEachLiveRange(const RecomputeTrace& t, F f) const {
  for (int32_t step = 0; step < std::ssize(t.runs); ++step) {
    bool taken = false;  // a node reuses at most one buffer
    for (int32_t i = t.made[step]; i < t.made[step + 1]; ++i) {
      const RecomputeTrace::LiveRange& range = t.live_ranges[i];
      const bool takes = !taken && CanReuseOperand(t, step, range.root);
      taken |= takes;
      const int32_t from = step + (takes ? 1 : 0), to = range.last + 1;
      if (from < to) f(range, from, to);
    }
  }
}

void RecomputeCostModel::ComputeLiveBytes(RecomputeTrace* t) const {
  const auto steps = static_cast<int32_t>(t->runs.size());
  std::vector<int64_t> change(steps + 2, 0);
  ForEachLiveRange(*t, [&](const RecomputeTrace::LiveRange& range, int32_t from, int32_t to) {
    change[from] += bytes_[range.root];
    change[to] -= bytes_[range.root];
  });
  t->live.resize(steps);
  int64_t now = 0;
  t->peak = 0;
  t->peak_step = 0;
  for (int32_t step = 0; step < steps; ++step) {
    t->live[step] = Aligned(costs_.workspace[t->runs[step].node]) + (now += change[step]);
    if (t->live[step] <= t->peak) continue;
    t->peak = t->live[step];
    t->peak_step = step;
  }
}

std::vector<RecomputeCostModel::KindBytes> RecomputeCostModel::SplitByKind(const RecomputeTrace& t) const {
  const auto steps = static_cast<int32_t>(t.runs.size());
  std::vector<KindBytes> split(steps, KindBytes{});
  ForEachLiveRange(t, [&](const RecomputeTrace::LiveRange& range, int32_t from, int32_t to) {
    const bool early = producer(range.root) < costs_.boundary;
    const Kind kind = range.clone ? kRecomputed : !early ? kBackward : range.last >= t.backward ? kSaved : kForward;
    for (int32_t step = from; step < std::min(to, steps); ++step) split[step][kind] += bytes_[range.root];
  });
  for (int32_t step = 0; step < steps; ++step) split[step][kWorkspace] = Aligned(costs_.workspace[t.runs[step].node]);
  return split;
}

void RecomputeCostModel::Simulate(const RecomputeSchedule& recomputed, RecomputeTrace* trace) const {
  MakeRuns(MakeBackwardRuns(recomputed), trace);
  ComputeLiveRanges(recomputed, trace);
  ComputeLiveBytes(trace);
}

}  // namespace onnxtrain
