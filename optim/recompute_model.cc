#include "optim/recompute_model.h"

#include <algorithm>

namespace onnxtrain {
namespace {

int64_t Aligned(size_t bytes) { return static_cast<int64_t>((bytes + 63) / 64 * 64); }

void AddOnce(std::vector<ValueId>* list, ValueId v) {
  if (std::find(list->begin(), list->end(), v) == list->end()) list->push_back(v);
}

}  // namespace

double RecomputeTrace::Excess(int64_t target) const {
  double sum = 0;
  for (int64_t bytes : live) sum += static_cast<double>(std::max<int64_t>(0, bytes - target));
  return sum;
}

RecomputeModel::RecomputeModel(const Graph& graph, RecomputeCosts costs)
    : flow_(MakeFlow(graph, true)), costs_(std::move(costs)), units_(graph.nodes().size()), bytes_(graph.values().size(), 0) {
  MakeUnits();
  MarkReaders();
  for (int32_t n = 0; n < std::ssize(units_); ++n) {
    if (!units_[n].runs) continue;
    total_seconds_ += costs_.seconds[n];
    if (n < costs_.boundary && !units_[n].results.empty() && flow_.rows[n]->recompute != Recompute::kNever) candidates_.push_back(n);
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
      unit.results.push_back(v);
    }
    size_ += 1 + unit.operands.size() + unit.results.size();
  }
}

void RecomputeModel::MarkReaders() {
  for (size_t n = costs_.boundary; n < units_.size(); ++n) {
    for (ValueId r : units_[n].operands) units_[producer(r)].read_late = true;
  }
}

// Which originals and clones run. A marked node whose result only late readers want runs as a clone alone.
void RecomputeModel::FindNeeded(const Again& again, std::vector<uint8_t>* original, std::vector<uint8_t>* clone) const {
  std::vector<uint8_t> read_early(costs_.boundary, 0), read_by_clone(costs_.boundary, 0);
  original->assign(costs_.boundary, 0);
  clone->assign(costs_.boundary, 0);
  for (int32_t n = costs_.boundary; n-- > 0;) {
    const Unit& unit = units_[n];
    if (!unit.runs) continue;
    const bool wanted_late = unit.read_late || read_by_clone[n];
    (*clone)[n] = again[n] && wanted_late;
    (*original)[n] = read_early[n] || unit.output || (wanted_late && !again[n]);
    for (ValueId r : unit.operands) {
      const int32_t p = producer(r);
      read_early[p] |= (*original)[n];
      read_by_clone[p] |= (*clone)[n];
    }
  }
}

void RecomputeModel::MakeRuns(const Again& again, const std::vector<uint8_t>& original, const std::vector<uint8_t>& clone,
                              RecomputeTrace* t) const {
  t->runs.clear();
  t->extra_seconds = 0;
  for (int32_t n = 0; n < costs_.boundary; ++n) {
    if (original[n]) t->runs.push_back({n, false});
  }
  t->backward = static_cast<int32_t>(t->runs.size());
  std::vector<uint8_t> made(costs_.boundary, 0);
  std::vector<int32_t> open;
  for (int32_t late = costs_.boundary; late < std::ssize(units_); ++late) {
    if (!units_[late].runs) continue;
    open.assign(1, late);
    while (!open.empty()) {
      const int32_t n = open.back();
      const size_t before = open.size();
      for (ValueId r : units_[n].operands) {
        if (Cloned(again, r) && !made[producer(r)]) open.push_back(producer(r));
      }
      if (open.size() > before) continue;
      open.pop_back();
      if (n < costs_.boundary) {
        if (made[n]) continue;
        made[n] = 1;
        t->extra_seconds += original[n] ? costs_.seconds[n] : 0;
      }
      t->runs.push_back({n, n < costs_.boundary});
    }
  }
}

void RecomputeModel::FindLives(const Again& again, RecomputeTrace* t) const {
  for (int side : {0, 1}) {
    t->first[side].assign(bytes_.size(), -1);
    t->last[side].assign(bytes_.size(), -1);
  }
  t->last_early.assign(bytes_.size(), -1);
  const auto end = static_cast<int32_t>(t->runs.size());
  for (int32_t step = 0; step < end; ++step) {
    const auto [n, clone] = t->runs[step];
    const bool late = clone || n >= costs_.boundary;
    for (ValueId r : units_[n].results) {
      t->first[clone][r] = step;
      t->last[clone][r] = !clone && flow_.is_output[r] ? end : step;
      if (!late) t->last_early[r] = step;
    }
    for (ValueId r : units_[n].operands) {
      int32_t& last = t->last[late && Cloned(again, r)][r];
      last = std::max(last, step);
      if (!late) t->last_early[r] = step;
    }
  }
}

// May the result live where an operand of the same size dies?
bool RecomputeModel::TakesOver(const RecomputeTrace& t, const Again& again, int32_t step, ValueId out) const {
  const auto [n, clone] = t.runs[step];
  if (!flow_.rows[n]->elementwise) return false;
  const bool late = clone || n >= costs_.boundary;
  const auto& operands = units_[n].operands;
  return std::any_of(operands.begin(), operands.end(), [&](ValueId r) {
    return bytes_[r] == bytes_[out] && t.last[late && Cloned(again, r)][r] == step && flow_.CanOverwrite(n, out, r);
  });
}

// Calls f(root, clone, from, to) for every result that takes bytes of its own, alive from step `from` up to before `to`.
template <typename F>
void RecomputeModel::ForLives(const Again& again, const RecomputeTrace& t, F f) const {
  for (int32_t step = 0; step < std::ssize(t.runs); ++step) {
    const auto [n, clone] = t.runs[step];
    bool taken = false;  // one takeover by a node is enough
    for (ValueId r : units_[n].results) {
      const bool takes = !taken && TakesOver(t, again, step, r);
      taken |= takes;
      const int32_t from = step + (takes ? 1 : 0), to = t.last[clone][r] + 1;
      if (from < to) f(r, clone, from, to);
    }
  }
}

void RecomputeModel::SumUp(const Again& again, RecomputeTrace* t) const {
  const auto steps = static_cast<int32_t>(t->runs.size());
  std::vector<int64_t> change(steps + 2, 0);
  ForLives(again, *t, [&](ValueId r, bool, int32_t from, int32_t to) {
    change[from] += bytes_[r];
    change[to] -= bytes_[r];
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

std::vector<RecomputeModel::KindBytes> RecomputeModel::Split(const Again& again, const RecomputeTrace& t) const {
  const auto steps = static_cast<int32_t>(t.runs.size());
  std::vector<KindBytes> split(steps, KindBytes{});
  ForLives(again, t, [&](ValueId r, bool clone, int32_t from, int32_t to) {
    const bool early = producer(r) < costs_.boundary;
    const Kind kind = clone ? kRecomputed : !early ? kBackward : t.last[0][r] >= t.backward ? kSaved : kForward;
    for (int32_t step = from; step < std::min(to, steps); ++step) split[step][kind] += bytes_[r];
  });
  for (int32_t step = 0; step < steps; ++step) split[step][kWorkspace] = Aligned(costs_.workspace[t.runs[step].node]);
  return split;
}

void RecomputeModel::Simulate(const Again& again, RecomputeTrace* trace) const {
  std::vector<uint8_t> original, clone;
  FindNeeded(again, &original, &clone);
  MakeRuns(again, original, clone, trace);
  FindLives(again, trace);
  SumUp(again, trace);
}

}  // namespace onnxtrain
