#include "optim/memory/search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>

#include "frontend/ops/row.h"
#include "frontend/passes/min_cut.h"

namespace onnxtrain {
namespace {

constexpr double kNoTime = 1e-9;  // seconds: keeps ratios finite

bool IsExpensive(const RecomputeCostModel& model, int32_t node) {
  return FindOp(model.graph().nodes()[node].op)->recompute == Recompute::kExpensive;
}

// The Pareto frontier so far: smaller peaks cost more time.
class Frontier {
 public:
  void Add(const RecomputeSchedule& recomputed, const RecomputeTrace& trace) {
    auto it = best_.upper_bound(trace.peak);
    if (it != best_.begin() && std::prev(it)->second.extra_seconds <= trace.extra_seconds) return;
    it = best_.lower_bound(trace.peak);
    while (it != best_.end() && it->second.extra_seconds >= trace.extra_seconds) it = best_.erase(it);
    best_[trace.peak] = {recomputed, trace.peak, trace.extra_seconds};
  }
  // Returns the fastest choice with at most this peak, or null.
  const RecomputeChoice* At(int64_t peak) const {
    auto it = best_.upper_bound(peak);
    return it == best_.begin() ? nullptr : &std::prev(it)->second;
  }
  // Returns all choices, from the fastest to the smallest.
  std::vector<RecomputeChoice> All() const {
    std::vector<RecomputeChoice> choices;
    for (auto it = best_.rbegin(); it != best_.rend(); ++it) choices.push_back(it->second);
    return choices;
  }

 private:
  std::map<int64_t, RecomputeChoice> best_;  // by peak
};

// Minimizes Σ price·bytes of saved values + Σ time of recomputed nodes.
class MinCutSolver {
 public:
  explicit MinCutSolver(const RecomputeCostModel& model) : model_(model) {}

  // `price`: seconds for keeping the results, by candidate.
  RecomputeSchedule Solve(const std::vector<double>& price) const {
    const auto& nodes = model_.candidates();
    std::vector<int32_t> vertex(model_.graph().nodes().size(), -1);
    for (size_t i = 0; i < nodes.size(); ++i) vertex[nodes[i]] = static_cast<int32_t>(2 * i);
    const auto source = static_cast<int32_t>(2 * nodes.size()), sink = source + 1;
    MinCut cut(sink + 1);
    for (size_t i = 0; i < nodes.size(); ++i) {
      const int32_t in = vertex[nodes[i]], out = in + 1;
      cut.AddEdge(in, out, Units(price[i]));
      cut.AddEdge(source, in, Units(model_.seconds(nodes[i])));
      if (model_.IsReadByBackward(nodes[i])) cut.AddEdge(out, sink, MinCut::kUncuttable);
      for (ValueId r : model_.operands(nodes[i])) {
        const int32_t from = vertex[model_.producer(r)];
        if (from >= 0) cut.AddEdge(from + 1, in, MinCut::kUncuttable);
      }
    }
    const std::vector<bool> side = cut.SourceSide(source, sink);
    RecomputeSchedule recomputed(model_.graph().nodes().size());
    for (size_t i = 0; i < nodes.size(); ++i) recomputed[nodes[i]] = side[2 * i] ? Clones() : Clones::Once();
    return recomputed;
  }

 private:
  static int64_t Units(double seconds) { return std::llround(std::min(seconds, 1e4) * 1e12) + 1; }

  const RecomputeCostModel& model_;
};

class Search {
 public:
  explicit Search(const RecomputeCostModel& model)
      : model_(model), min_cut_solver_(model), is_candidate_(model.graph().nodes().size(), false) {
    for (int32_t n : model.candidates()) is_candidate_[n] = true;
    const auto candidates = static_cast<int64_t>(model.candidates().size());
    const auto size = static_cast<int64_t>(model.size() + 1);
    simulations_left_ = std::clamp<int64_t>(40'000'000 / size, 100, 60'000);
    simulations_per_target_ = std::clamp<int64_t>(6'000'000 / size, 20, 600);
    cuts_left_ = std::clamp<int64_t>(60'000 / (candidates + 1), 16, 160);
    max_removals_ = std::clamp<int64_t>(2'000'000 / size, 10, candidates + 20);
  }

  std::vector<RecomputeChoice> Run() {
    const RecomputeSchedule none(model_.graph().nodes().size());
    SimulateAndRecord(none, &base_);
    if (base_.peak == 0 || model_.candidates().empty()) return frontier_.All();
    SweepUniformPrices();
    RecomputeTrace trace;
    for (const RecomputeSchedule& recomputed : SolveChain(model_, SomeCuts())) {
      if (CanSimulate()) SimulateAndRecord(recomputed, &trace);
    }
    for (int segments = 2; segments <= 32 && CanSimulate(); segments += (segments + 1) / 2)
      ReducePeakFrom(RecomputeSegments(model_, segments).recomputed);
    const int64_t share = simulations_left_ / 2;
    LowerPeakStepwise(false, simulations_left_ - share);
    for (double part : {0.75, 0.6, 0.5, 0.4, 0.33, 0.25, 0.2})
      SweepStepPrices(static_cast<int64_t>(part * static_cast<double>(base_.peak)));
    LowerPeakStepwise(true, 0);
    FlipRandomly();
    return frontier_.All();
  }

 private:
  // Returns true if simulations are left, besides `keep` for other searches. Every loop over schedules calls it.
  bool CanSimulate(int64_t keep = 0) const { return simulations_left_ > keep; }

  // Simulates a schedule and adds it to the frontier.
  void SimulateAndRecord(const RecomputeSchedule& recomputed, RecomputeTrace* trace) {
    model_.Simulate(recomputed, trace);
    --simulations_left_;
    frontier_.Add(recomputed, *trace);
  }

  // Returns, by candidate, its bytes times the prices of the steps in which its results are live between the last
  // forward and the last backward read.
  std::vector<double> Prices(const std::vector<double>& at_step) const {
    const auto steps = static_cast<int32_t>(at_step.size());
    std::vector<double> sum(steps + 1, 0), of_node(model_.graph().nodes().size(), 0), prices;
    for (int32_t s = 0; s < steps; ++s) sum[s + 1] = sum[s] + at_step[s];
    for (const RecomputeTrace::LiveRange& range : base_.live_ranges) {
      if (range.last_forward_read < 0) continue;
      const int32_t from = range.last_forward_read + 1, to = std::clamp(range.last + 1, from, steps);
      of_node[model_.producer(range.root)] += static_cast<double>(model_.bytes(range.root)) * (sum[to] - sum[from]);
    }
    for (int32_t n : model_.candidates()) prices.push_back(of_node[n]);
    return prices;
  }

  // Tries a range of uniform prices.
  void SweepUniformPrices() {
    int64_t bytes = 0;
    for (int32_t n : model_.candidates()) {
      for (ValueId r : model_.results(n)) bytes += model_.bytes(r);
    }
    const double middle = model_.total_seconds() / static_cast<double>(bytes + 1);
    RecomputeTrace trace;
    for (int exponent = -10; exponent <= 6 && CanSimulate(); exponent += cuts_left_ < 40 ? 2 : 1) {
      std::vector<double> prices;
      for (int32_t n : model_.candidates()) {
        double kept = 0;
        for (ValueId r : model_.results(n)) kept += static_cast<double>(model_.bytes(r));
        prices.push_back(kept * middle * std::exp2(exponent));
      }
      cuts_.push_back(min_cut_solver_.Solve(prices));
      SimulateAndRecord(cuts_.back(), &trace);
      --cuts_left_;
    }
  }

  // Returns a sample of the cuts, as many as the remaining simulations can measure block by block.
  std::vector<RecomputeSchedule> SomeCuts() const {
    const size_t stride = std::clamp<int64_t>(10'000 / std::max<int64_t>(simulations_left_, 1), 1, 8);
    std::vector<RecomputeSchedule> some;
    for (size_t i = 0; i < cuts_.size(); i += stride) some.push_back(cuts_[i]);
    return some;
  }

  // Raises the prices of steps with more live bytes than the target, and lowers the others.
  void SweepStepPrices(int64_t target) {
    constexpr int kRounds = 20;
    if (cuts_left_ <= 0 || !CanSimulate()) return;
    const auto steps = base_.live.size();
    std::vector<double> price(steps, 0);
    double start = model_.total_seconds() / static_cast<double>(base_.peak) / static_cast<double>(steps);
    for (size_t s = 0; s < steps; ++s) price[s] = base_.live[s] > target ? start : start / 64;
    RecomputeTrace trace;
    std::optional<RecomputeSchedule> best;
    double least = 0;
    for (int round = 0; round < kRounds && CanSimulate() && cuts_left_-- > 0; ++round) {
      const RecomputeSchedule recomputed = min_cut_solver_.Solve(Prices(price));
      SimulateAndRecord(recomputed, &trace);
      const double excess = trace.Excess(target) + 1e-9 * trace.extra_seconds;
      if (!best || excess < least) best = recomputed, least = excess;
      Reprice(trace, target, &price);
    }
    ReducePeakFrom(*best, target);
  }

  // Maps the steps of a trace to steps of the base by their nodes; a clone counts as the step in which it runs.
  void Reprice(const RecomputeTrace& trace, int64_t target, std::vector<double>* price) const {
    std::vector<int32_t> step_of(model_.graph().nodes().size(), -1);
    for (size_t s = 0; s < base_.runs.size(); ++s) step_of[base_.runs[s].node] = static_cast<int32_t>(s);
    std::vector<int64_t> live(price->size(), 0);
    int32_t at = 0;
    for (size_t s = 0; s < trace.runs.size(); ++s) {
      if (!trace.runs[s].clone()) at = std::max(0, step_of[trace.runs[s].node]);
      live[at] = std::max(live[at], trace.live[s]);
    }
    for (size_t s = 0; s < price->size(); ++s) {
      const double over = static_cast<double>(live[s]) / static_cast<double>(target) - 1;
      (*price)[s] *= std::exp2(std::clamp(2 * over, -0.5, 1.0));
    }
  }

  // Adds recomputations until the peak is within the target, then removes unneeded ones.
  void ReducePeakFrom(const RecomputeSchedule& start) {
    RecomputeSchedule recomputed = start;
    RecomputeTrace trace;
    SimulateAndRecord(recomputed, &trace);
    if (trace.peak < base_.peak) RemoveUnneeded(recomputed, trace, trace.peak);
  }
  void ReducePeakFrom(RecomputeSchedule recomputed, int64_t target) {
    RecomputeTrace trace;
    SimulateAndRecord(recomputed, &trace);
    ReducePeak(recomputed, trace, target, simulations_left_ - simulations_per_target_);
    RemoveUnneeded(recomputed, trace, std::max(trace.peak, target));
  }

  // Lowers the peak step by step, starting from no recomputation, until no move helps. Overshoots each target, then
  // removes the most expensive recomputations, so that cheap ones replace them. `known`: continues from better choices
  // of the frontier. `keep`: simulations to leave for other searches.
  void LowerPeakStepwise(bool known, int64_t keep) {
    constexpr double kStep = 0.95, kPast = 0.93;
    RecomputeSchedule recomputed(model_.graph().nodes().size());
    RecomputeTrace trace;
    SimulateAndRecord(recomputed, &trace);
    for (double target = kStep * static_cast<double>(base_.peak); CanSimulate(keep); target *= kStep) {
      const auto bytes = static_cast<int64_t>(target);
      if (const RecomputeChoice* best = known ? frontier_.At(bytes) : nullptr) {
        recomputed = best->recomputed;
        SimulateAndRecord(recomputed, &trace);
      }
      const bool passed = ReducePeak(recomputed, trace, static_cast<int64_t>(kPast * target), keep);
      if (!passed && trace.peak > bytes) break;
      RemoveUnneeded(recomputed, trace, bytes);
    }
  }

  // Flips a few random candidates of a small graph at a time, starting from the choices of the frontier.
  void FlipRandomly() {
    constexpr size_t kMaxCandidates = 24, kFlips = 5;
    constexpr int kRounds = 100, kTries = 400;
    const auto& nodes = model_.candidates();
    if (nodes.size() > kMaxCandidates) return;
    std::mt19937 random(1);
    RecomputeTrace trace;
    for (int round = 0; round < kRounds && CanSimulate(); ++round) {
      const std::vector<RecomputeChoice> choices = frontier_.All();
      for (int i = 0; i < kTries && CanSimulate(); ++i) {
        RecomputeSchedule recomputed = choices[random() % choices.size()].recomputed;
        for (size_t flips = 1 + random() % kFlips; flips > 0; --flips) {
          Clones& repeats = recomputed[nodes[random() % nodes.size()]];
          repeats = repeats.any() ? Clones() : Clones::Once();
        }
        SimulateAndRecord(recomputed, &trace);
      }
    }
  }

  // Adds or removes a clone of each node, for the readers from `from` on.
  struct Move {
    std::vector<int32_t> nodes;
    int32_t from = 0;
    bool add = true;
    double worth = 0;
  };

  // Returns, by live range, the first step after the peak that reads it; 0: none, or the step of the peak reads it.
  static std::vector<int32_t> NextReads(const RecomputeTrace& t) {
    std::vector<int32_t> next(t.live_ranges.size(), 0);
    for (auto step = static_cast<int32_t>(t.runs.size()); --step >= t.peak_step;) {
      for (int32_t i = t.first_read[step]; i < t.first_read[step + 1]; ++i)
        next[t.reads[i]] = step == t.peak_step ? 0 : step;
    }
    return next;
  }

  // Returns moves that can lower the peak: values that are live across it are recomputed for their next reader, with or
  // without the operands that would have to be kept for that; clones that are made too early are removed.
  std::vector<Move> FindMovesAtPeak(const RecomputeSchedule& recomputed, const RecomputeTrace& t) const {
    constexpr size_t kMaxMoves = 24;
    const std::vector<int32_t> next = NextReads(t);
    std::vector<Move> moves;
    int32_t last = -1;  // the results of a node are adjacent: one move covers all
    for (size_t i = 0; i < t.live_ranges.size(); ++i) {
      const RecomputeTrace::LiveRange& range = t.live_ranges[i];
      const int32_t n = model_.producer(range.root);
      if (!range.Covers(t.peak_step) || !is_candidate_[n] || model_.IsSide(range.root)) continue;
      const auto bytes = static_cast<double>(model_.bytes(range.root));
      const RecomputeTrace::Run& made = t.runs[range.first];
      if (range.clone) moves.push_back({{n}, recomputed[n][recomputed[n].At(made.backward) - 1], false, bytes * 1e3});
      const int32_t from = next[i] == 0 ? -1 : t.runs[next[i]].backward;
      if (range.first == t.peak_step || from < 0) continue;
      const double worth = bytes / (model_.seconds(n) + kNoTime);
      if (range.first == last && moves.back().add && moves.back().nodes[0] == n) {
        moves.back().from = std::min(moves.back().from, from);
        moves.back().worth += worth;
      } else {
        moves.push_back({{n}, from, true, worth});
      }
      last = range.first;
    }
    std::stable_sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) { return a.worth > b.worth; });
    if (moves.size() > kMaxMoves) moves.resize(kMaxMoves);
    for (size_t i = 0, count = moves.size(); i < count; ++i) {
      if (moves[i].add) moves.push_back({WithOperands(t, moves[i]), moves[i].from});
    }
    return moves;
  }

  // Returns the nodes of the move and the transitive producers of operands that are not live at that step.
  std::vector<int32_t> WithOperands(const RecomputeTrace& t, const Move& move) const {
    const int32_t then = t.FindStep(move.from);
    std::vector<int32_t> nodes = move.nodes;
    const auto has = [&](int32_t n) { return std::find(nodes.begin(), nodes.end(), n) != nodes.end(); };
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (ValueId r : model_.operands(nodes[i])) {
        const int32_t p = model_.producer(r);
        const bool kept = !is_candidate_[p] || model_.IsSide(r) || IsAlive(t, r, then);
        if (!kept && !has(p)) nodes.push_back(p);
      }
    }
    return nodes;
  }

  static bool IsAlive(const RecomputeTrace& t, ValueId root, int32_t step) {
    int32_t range = t.newest[root];
    while (range >= 0 && !t.live_ranges[range].Covers(step)) range = t.live_ranges[range].before;
    return range >= 0;
  }

  static void Apply(const Move& move, RecomputeSchedule* recomputed) {
    for (int32_t n : move.nodes) {
      if (move.add) {
        (*recomputed)[n].Add(move.from);
      } else {
        (*recomputed)[n].Remove(move.from);
      }
    }
  }

  // Applies moves by gain per second until the target is met; returns false if it cannot be.
  bool ReducePeak(RecomputeSchedule& recomputed, RecomputeTrace& t, int64_t target, int64_t keep) {
    RecomputeTrace next;
    while (t.peak > target && CanSimulate(keep)) {
      const double excess = t.Excess(target);
      std::vector<Move> moves = FindMovesAtPeak(recomputed, t);
      for (Move& move : moves) {
        move.worth = 0;
        if (!CanSimulate(keep)) continue;
        RecomputeSchedule changed = recomputed;
        Apply(move, &changed);
        SimulateAndRecord(changed, &next);
        const double gain = excess - next.Excess(target);
        move.worth = gain <= 0 ? 0 : gain / std::max(kNoTime, next.extra_seconds - t.extra_seconds);
      }
      std::stable_sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) { return a.worth > b.worth; });
      if (!ApplyBest(moves, target, recomputed, t)) return false;
    }
    return t.peak <= target;
  }

  // Applies the best move, and nearly as good ones that still help after it, so that equal blocks change together.
  bool ApplyBest(const std::vector<Move>& moves, int64_t target, RecomputeSchedule& recomputed, RecomputeTrace& t) {
    constexpr double kNearly = 0.7;
    RecomputeTrace next;
    bool any = false;
    for (const Move& move : moves) {
      if (move.worth <= 0 || move.worth < kNearly * moves[0].worth || t.peak <= target) break;
      if (!CanSimulate()) break;
      RecomputeSchedule changed = recomputed;
      Apply(move, &changed);
      SimulateAndRecord(changed, &next);
      if (next.Excess(target) >= t.Excess(target)) continue;
      recomputed = std::move(changed);
      std::swap(t, next);
      any = true;
    }
    return any;
  }

  // Removes recomputations, the most expensive first, while the peak stays within the limit.
  void RemoveUnneeded(RecomputeSchedule& recomputed, RecomputeTrace& t, int64_t limit) {
    std::vector<Move> moves;
    for (int32_t n : model_.candidates()) {
      for (size_t i = 0; i < recomputed[n].count(); ++i)
        moves.push_back({{n}, recomputed[n][i], false, model_.seconds(n)});
    }
    std::stable_sort(moves.begin(), moves.end(), [&](const Move& a, const Move& b) { return a.worth > b.worth; });
    if (std::ssize(moves) > max_removals_) moves.resize(max_removals_);
    RecomputeTrace next;
    for (const Move& move : moves) {
      if (!CanSimulate()) break;
      const Clones before = recomputed[move.nodes[0]];
      Apply(move, &recomputed);
      SimulateAndRecord(recomputed, &next);
      if (next.peak <= limit && next.extra_seconds <= t.extra_seconds) {
        std::swap(t, next);
      } else {
        recomputed[move.nodes[0]] = before;
      }
    }
  }

  const RecomputeCostModel& model_;
  const MinCutSolver min_cut_solver_;
  std::vector<bool> is_candidate_;  // by node
  RecomputeTrace base_;
  std::vector<RecomputeSchedule> cuts_;  // minimum cuts for uniform prices
  Frontier frontier_;
  int64_t simulations_left_, simulations_per_target_, cuts_left_, max_removals_;
};

RecomputeChoice SimulateChoice(const RecomputeCostModel& model, RecomputeSchedule recomputed) {
  RecomputeTrace trace;
  model.Simulate(recomputed, &trace);
  return {std::move(recomputed), trace.peak, trace.extra_seconds};
}

}  // namespace

RecomputeChoice RecomputeCheap(const RecomputeCostModel& model) {
  RecomputeSchedule recomputed(model.graph().nodes().size());
  for (int32_t n : model.candidates()) recomputed[n] = IsExpensive(model, n) ? Clones() : Clones::Once();
  return SimulateChoice(model, std::move(recomputed));
}

// Chooses the narrowest cuts near multiples of an equal share of bytes as borders. Keeps the last segment.
RecomputeChoice RecomputeSegments(const RecomputeCostModel& model, int segments) {
  const auto& nodes = model.candidates();
  const std::vector<int64_t> crossing = CrossingBytes(model);
  std::vector<double> before(nodes.size() + 1, 0);
  for (size_t i = 0; i < nodes.size(); ++i) {
    double bytes = 0;
    for (ValueId r : model.results(nodes[i])) bytes += static_cast<double>(model.bytes(r));
    before[i + 1] = before[i] + bytes;
  }
  std::vector<size_t> borders;  // the last candidate before each
  for (int s = 1; s < segments; ++s) {
    const double middle = before.back() * s / segments, half = before.back() / segments / 2;
    size_t best = nodes.size();
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (before[i + 1] < middle - half || before[i + 1] > middle + half) continue;
      if (best == nodes.size() || crossing[i] < crossing[best]) best = i;
    }
    if (best < nodes.size() && (borders.empty() || best > borders.back())) borders.push_back(best);
  }
  RecomputeSchedule recomputed(model.graph().nodes().size());
  std::vector<size_t> segment(model.graph().nodes().size(), 0);
  for (size_t i = 0, s = 0; i < nodes.size(); ++i) {
    segment[nodes[i]] = s;
    if (s < borders.size()) recomputed[nodes[i]] = Clones::Once();
    if (s < borders.size() && i == borders[s]) ++s;
  }
  for (int32_t n : nodes) {  // values that cross a border are kept
    for (ValueId r : model.operands(n)) {
      if (segment[model.producer(r)] != segment[n]) recomputed[model.producer(r)] = Clones();
    }
  }
  return SimulateChoice(model, std::move(recomputed));
}

RecomputeChoice RecomputeSqrt(const RecomputeCostModel& model) {
  const auto& nodes = model.candidates();
  const auto expensive = std::count_if(nodes.begin(), nodes.end(), [&](int32_t n) { return IsExpensive(model, n); });
  return RecomputeSegments(model, std::max(2, static_cast<int>(std::ceil(std::sqrt(static_cast<double>(expensive))))));
}

std::vector<RecomputeChoice> RecomputeFrontier(const RecomputeCostModel& model) { return Search(model).Run(); }

}  // namespace onnxtrain
