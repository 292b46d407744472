#include "optim/recompute_model.h"

#include <algorithm>

namespace onnxtrain {
namespace {

int64_t Aligned(size_t bytes) { return static_cast<int64_t>((bytes + 63) / 64 * 64); }

void AddOnce(std::vector<ValueId>* list, ValueId v) {
  if (std::find(list->begin(), list->end(), v) == list->end()) list->push_back(v);
}

}  // namespace

std::vector<int32_t> RepeatedWith(const Graph& graph, int32_t boundary) {
  const auto readers = Readers(graph);
  std::vector<int32_t> with(graph.nodes().size());
  for (int32_t n = 0; n < std::ssize(with); ++n) {
    const Node& node = graph.nodes()[n];
    const OpRow* row = FindOp(node.op);
    const auto& readers_of = readers[node.outputs[0]];
    const bool of_weights = row != nullptr && row->derive && std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) {
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

int32_t RecomputeTrace::StepOf(int32_t node) const {
  const auto before = [node](const Run& run) { return run.late < node; };
  return static_cast<int32_t>(std::partition_point(runs.begin(), runs.end(), before) - runs.begin());
}

RecomputeModel::RecomputeModel(const Graph& graph, RecomputeCosts costs)
    : flow_(MakeFlow(graph, true)), costs_(std::move(costs)), with_(RepeatedWith(graph, costs_.boundary)), units_(graph.nodes().size()),
      bytes_(graph.values().size(), 0), side_(graph.values().size(), false) {
  MakeUnits();
  MarkReaders();
  for (int32_t n = 0; n < std::ssize(units_); ++n) {
    if (!units_[n].runs) continue;
    total_seconds_ += costs_.seconds[n];
    const bool repeatable = with_[n] == n && !units_[n].results.empty() && flow_.rows[n]->recompute != Recompute::kNever;
    if (n < costs_.boundary && repeatable) candidates_.push_back(n);
  }
}

void RecomputeModel::MakeUnits() {
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
      side_[v] = IsSideResult(graph(), v);
      unit.results.push_back(v);
    }
    size_ += 1 + unit.operands.size() + unit.results.size();
  }
}

void RecomputeModel::MarkReaders() {
  for (size_t n = costs_.boundary; n < units_.size(); ++n) {
    for (ValueId r : units_[n].operands) units_[producer(r)].read_late |= !side_[r];
  }
}

struct RecomputeModel::Late {
  std::vector<RecomputeTrace::Run> runs;
  std::vector<uint8_t> read;   // by early node: is its original read in the backward pass?
  std::vector<uint8_t> again;  // by early node: is there a clone?
};

// The backward pass in list order, each clone right before the first node that needs it, deepest first.
RecomputeModel::Late RecomputeModel::MakeLate(const Again& again) const {
  Late made{.read = std::vector<uint8_t>(costs_.boundary, 0), .again = std::vector<uint8_t>(costs_.boundary, 0)};
  std::vector<uint8_t> current(costs_.boundary, 0);  // which clone there is
  std::vector<int32_t> open;
  for (int32_t late = costs_.boundary; late < std::ssize(units_); ++late) {
    if (!units_[late].runs) continue;
    open.assign(1, late);
    while (!open.empty()) {
      const int32_t n = open.back();
      const size_t before = open.size();
      for (ValueId r : units_[n].operands) {
        const int32_t of = producer(r);
        if (of >= costs_.boundary) continue;
        const size_t serving = Serving(again, r, late);
        if (serving == 0) made.read[of] = 1;
        if (serving > 0 && serving != current[of]) open.push_back(of);
      }
      if (open.size() > before) continue;
      open.pop_back();
      if (n < costs_.boundary) {
        const size_t serving = At(again, n, late);
        if (current[n] == serving) continue;
        current[n] = static_cast<uint8_t>(serving);
        made.again[n] = 1;
      }
      made.runs.push_back({n, late});
    }
  }
  return made;
}

// A node that runs again and whose original nothing wants runs as a clone alone.
void RecomputeModel::MakeRuns(const Late& late, RecomputeTrace* t) const {
  std::vector<uint8_t> wanted = late.read;
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
    if (late.again[n] && !wanted[n]) t->extra_seconds -= costs_.seconds[n];
  }
  t->backward = static_cast<int32_t>(t->runs.size());
  t->runs.insert(t->runs.end(), late.runs.begin(), late.runs.end());
  for (const RecomputeTrace::Run& run : late.runs) t->extra_seconds += run.clone() ? costs_.seconds[run.node] : 0;
}

void RecomputeModel::FindLives(const Again& again, RecomputeTrace* t) const {
  std::vector<int32_t> original(bytes_.size(), -1);
  for (auto* list : {&t->made, &t->reads, &t->reads_of}) list->clear();
  t->lives.clear();
  t->newest.assign(bytes_.size(), -1);
  const auto end = static_cast<int32_t>(t->runs.size());
  for (int32_t step = 0; step < end; ++step) {
    const RecomputeTrace::Run& run = t->runs[step];
    t->made.push_back(static_cast<int32_t>(t->lives.size()));
    t->reads_of.push_back(static_cast<int32_t>(t->reads.size()));
    for (ValueId r : units_[run.node].operands) {
      const int32_t life = run.late >= 0 && Serving(again, r, run.late) > 0 ? t->newest[r] : original[r];
      t->reads.push_back(life);
      t->lives[life].last = std::max(t->lives[life].last, step);
      if (run.late < 0) t->lives[life].last_early = step;
    }
    for (ValueId r : units_[run.node].results) {
      if (!run.clone()) original[r] = static_cast<int32_t>(t->lives.size());
      t->lives.push_back({r, step, !run.clone() && flow_.is_output[r] ? end : step, run.late < 0 ? step : -1, t->newest[r], run.clone()});
      t->newest[r] = static_cast<int32_t>(t->lives.size()) - 1;
    }
  }
  t->made.push_back(static_cast<int32_t>(t->lives.size()));
  t->reads_of.push_back(static_cast<int32_t>(t->reads.size()));
}

// May the result live where an operand of the same size dies?
bool RecomputeModel::TakesOver(const RecomputeTrace& t, int32_t step, ValueId out) const {
  return std::any_of(t.reads.begin() + t.reads_of[step], t.reads.begin() + t.reads_of[step + 1], [&](int32_t read) {
    const RecomputeTrace::Life& life = t.lives[read];
    return bytes_[life.root] == bytes_[out] && life.last == step && flow_.CanOverwrite(t.runs[step].node, out, life.root);
  });
}

// Calls f(life, from, to) for every result that takes bytes of its own, alive from step `from` up to before `to`.
template <typename F>
void RecomputeModel::ForLives(const RecomputeTrace& t, F f) const {
  for (int32_t step = 0; step < std::ssize(t.runs); ++step) {
    bool taken = false;  // one takeover by a node is enough
    for (int32_t i = t.made[step]; i < t.made[step + 1]; ++i) {
      const RecomputeTrace::Life& life = t.lives[i];
      const bool takes = !taken && TakesOver(t, step, life.root);
      taken |= takes;
      const int32_t from = step + (takes ? 1 : 0), to = life.last + 1;
      if (from < to) f(life, from, to);
    }
  }
}

void RecomputeModel::SumUp(RecomputeTrace* t) const {
  const auto steps = static_cast<int32_t>(t->runs.size());
  std::vector<int64_t> change(steps + 2, 0);
  ForLives(*t, [&](const RecomputeTrace::Life& life, int32_t from, int32_t to) {
    change[from] += bytes_[life.root];
    change[to] -= bytes_[life.root];
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

std::vector<RecomputeModel::KindBytes> RecomputeModel::Split(const RecomputeTrace& t) const {
  const auto steps = static_cast<int32_t>(t.runs.size());
  std::vector<KindBytes> split(steps, KindBytes{});
  ForLives(t, [&](const RecomputeTrace::Life& life, int32_t from, int32_t to) {
    const bool early = producer(life.root) < costs_.boundary;
    const Kind kind = life.clone ? kRecomputed : !early ? kBackward : life.last >= t.backward ? kSaved : kForward;
    for (int32_t step = from; step < std::min(to, steps); ++step) split[step][kind] += bytes_[life.root];
  });
  for (int32_t step = 0; step < steps; ++step) split[step][kWorkspace] = Aligned(costs_.workspace[t.runs[step].node]);
  return split;
}

void RecomputeModel::Simulate(const Again& again, RecomputeTrace* trace) const {
  MakeRuns(MakeLate(again), trace);
  FindLives(again, trace);
  SumUp(trace);
}

}  // namespace onnxtrain
