#include "optim/recompute_search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>

#include "frontend/ops/row.h"
#include "frontend/passes/min_cut.h"
#include "optim/recompute_chain.h"

namespace onnxtrain {
namespace {

constexpr double kNoTime = 1e-9;  // seconds: keeps ratios finite

bool IsExpensive(const RecomputeModel& model, int32_t node) {
  return FindOp(model.graph().nodes()[node].op)->recompute == Recompute::kExpensive;
}

// The choices found so far that none beats. Smaller peaks cost more time.
class Frontier {
 public:
  void Add(const Again& again, const RecomputeTrace& trace) {
    auto it = best_.upper_bound(trace.peak);
    if (it != best_.begin() && std::prev(it)->second.extra_seconds <= trace.extra_seconds) return;
    it = best_.lower_bound(trace.peak);
    while (it != best_.end() && it->second.extra_seconds >= trace.extra_seconds) it = best_.erase(it);
    best_[trace.peak] = {again, trace.peak, trace.extra_seconds};
  }
  // The fastest that needs at most `peak`, or null.
  const RecomputeChoice* At(int64_t peak) const {
    auto it = best_.upper_bound(peak);
    return it == best_.begin() ? nullptr : &std::prev(it)->second;
  }
  // From the fastest to the smallest.
  std::vector<RecomputeChoice> All() const {
    std::vector<RecomputeChoice> choices;
    for (auto it = best_.rbegin(); it != best_.rend(); ++it) choices.push_back(it->second);
    return choices;
  }

 private:
  std::map<int64_t, RecomputeChoice> best_;  // by peak
};

// The joint graph cut where Σ price·bytes of what is saved + Σ time of what runs again is least.
class Cutter {
 public:
  explicit Cutter(const RecomputeModel& model) : model_(model) {}

  // price: seconds for keeping the node's results, by candidate.
  Again Cut(const std::vector<double>& price) const {
    const auto& nodes = model_.candidates();
    std::vector<int32_t> vertex(model_.graph().nodes().size(), -1);
    for (size_t i = 0; i < nodes.size(); ++i) vertex[nodes[i]] = static_cast<int32_t>(2 * i);
    const auto source = static_cast<int32_t>(2 * nodes.size()), sink = source + 1;
    MinCut cut(sink + 1);
    for (size_t i = 0; i < nodes.size(); ++i) {
      const int32_t in = vertex[nodes[i]], out = in + 1;
      cut.AddEdge(in, out, Units(price[i]));
      cut.AddEdge(source, in, Units(model_.seconds(nodes[i])));
      if (model_.ReadLate(nodes[i])) cut.AddEdge(out, sink, MinCut::kUncuttable);
      for (ValueId r : model_.operands(nodes[i])) {
        const int32_t from = vertex[model_.producer(r)];
        if (from >= 0) cut.AddEdge(from + 1, in, MinCut::kUncuttable);
      }
    }
    const std::vector<bool> side = cut.SourceSide(source, sink);
    Again again(model_.graph().nodes().size());
    for (size_t i = 0; i < nodes.size(); ++i) again[nodes[i]] = side[2 * i] ? Repeats() : Repeats::Once();
    return again;
  }

 private:
  static int64_t Units(double seconds) { return std::llround(std::min(seconds, 1e4) * 1e12) + 1; }

  const RecomputeModel& model_;
};

class Search {
 public:
  explicit Search(const RecomputeModel& model) : model_(model), cutter_(model), is_candidate_(model.graph().nodes().size(), false) {
    for (int32_t n : model.candidates()) is_candidate_[n] = true;
    const auto candidates = static_cast<int64_t>(model.candidates().size());
    simulations_left_ = std::clamp<int64_t>(40'000'000 / static_cast<int64_t>(model.size() + 1), 400, 60'000);
    cuts_left_ = std::clamp<int64_t>(60'000 / (candidates + 1), 16, 160);
    most_taken_back_ = std::clamp<int64_t>(2'000'000 / static_cast<int64_t>(model.size() + 1), 20, candidates + 20);
  }

  std::vector<RecomputeChoice> Run() {
    const Again none(model_.graph().nodes().size());
    Try(none, &base_);
    if (base_.peak == 0) return frontier_.All();
    UniformPrices();
    RecomputeTrace trace;
    for (const Again& again : ChainChoices(model_, SomeCuts())) Try(again, &trace);
    for (int segments = 2; segments <= 32; segments += (segments + 1) / 2) Improve(RecomputeSegments(model_, segments).again);
    const int64_t share = simulations_left_ / 2;
    Descend(false, simulations_left_ - share);
    for (double part : {0.75, 0.6, 0.5, 0.4, 0.33, 0.25, 0.2}) StepPrices(static_cast<int64_t>(part * static_cast<double>(base_.peak)));
    Descend(true, 0);
    FlipAtRandom();
    return frontier_.All();
  }

 private:
  // Simulates and remembers.
  void Try(const Again& again, RecomputeTrace* trace) {
    model_.Simulate(again, trace);
    --simulations_left_;
    frontier_.Add(again, *trace);
  }

  // Bytes × steps that a candidate's results wait between their last early and their first late reader, each step times its price.
  std::vector<double> Prices(const std::vector<double>& at_step) const {
    const auto steps = static_cast<int32_t>(at_step.size());
    std::vector<double> sum(steps + 1, 0), of_node(model_.graph().nodes().size(), 0), prices;
    for (int32_t s = 0; s < steps; ++s) sum[s + 1] = sum[s] + at_step[s];
    for (const RecomputeTrace::Life& life : base_.lives) {
      if (life.last_early < 0) continue;
      const int32_t from = life.last_early + 1, to = std::clamp(life.last + 1, from, steps);
      of_node[model_.producer(life.root)] += static_cast<double>(model_.bytes(life.root)) * (sum[to] - sum[from]);
    }
    for (int32_t n : model_.candidates()) prices.push_back(of_node[n]);
    return prices;
  }

  // A sweep over one price for all bytes.
  void UniformPrices() {
    int64_t bytes = 0;
    for (int32_t n : model_.candidates()) {
      for (ValueId r : model_.results(n)) bytes += model_.bytes(r);
    }
    const double middle = model_.total_seconds() / static_cast<double>(bytes + 1);
    RecomputeTrace trace;
    for (int exponent = -10; exponent <= 6; exponent += cuts_left_ < 40 ? 2 : 1) {
      std::vector<double> prices;
      for (int32_t n : model_.candidates()) {
        double kept = 0;
        for (ValueId r : model_.results(n)) kept += static_cast<double>(model_.bytes(r));
        prices.push_back(kept * middle * std::exp2(exponent));
      }
      cuts_.push_back(cutter_.Cut(prices));
      Try(cuts_.back(), &trace);
      --cuts_left_;
    }
  }

  // As many as there is time to measure block by block.
  std::vector<Again> SomeCuts() const {
    const size_t stride = std::clamp<size_t>(10'000 / static_cast<size_t>(simulations_left_), 1, 8);
    std::vector<Again> some;
    for (size_t i = 0; i < cuts_.size(); i += stride) some.push_back(cuts_[i]);
    return some;
  }

  // Prices of steps rise where more than the target is alive and fall elsewhere.
  void StepPrices(int64_t target) {
    constexpr int kRounds = 20;
    if (cuts_left_ <= 0) return;
    const auto steps = base_.live.size();
    std::vector<double> price(steps, 0);
    double start = model_.total_seconds() / static_cast<double>(base_.peak) / static_cast<double>(steps);
    for (size_t s = 0; s < steps; ++s) price[s] = base_.live[s] > target ? start : start / 64;
    RecomputeTrace trace;
    std::optional<Again> best;
    double least = 0;
    for (int round = 0; round < kRounds && cuts_left_-- > 0; ++round) {
      const Again again = cutter_.Cut(Prices(price));
      Try(again, &trace);
      const double excess = trace.Excess(target) + 1e-9 * trace.extra_seconds;
      if (!best || excess < least) best = again, least = excess;
      Reprice(trace, target, &price);
    }
    Improve(*best, target);
  }

  // Steps of a trace correspond to those of the base by their nodes; clones count where they run.
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

  // Flips until the peak is met, then takes back what is not needed for it.
  void Improve(const Again& start) {
    Again again = start;
    RecomputeTrace trace;
    Try(again, &trace);
    if (trace.peak < base_.peak) Trim(again, trace, trace.peak);
  }
  void Improve(Again again, int64_t target) {
    RecomputeTrace trace;
    Try(again, &trace);
    Lower(again, trace, target, simulations_left_ - 600);
    Trim(again, trace, std::max(trace.peak, target));
  }

  // From keeping everything to ever smaller peaks, until no flip helps. Each target is passed by some before what costs most is
  // taken back: so cheap repetitions replace dear ones. `known`: better choices that were found are gone on from.
  // `keep`: simulations to leave for others.
  void Descend(bool known, int64_t keep) {
    constexpr double kStep = 0.95, kPast = 0.93;
    Again again(model_.graph().nodes().size());
    RecomputeTrace trace;
    Try(again, &trace);
    for (double target = kStep * static_cast<double>(base_.peak); simulations_left_ > keep; target *= kStep) {
      const auto bytes = static_cast<int64_t>(target);
      if (const RecomputeChoice* best = known ? frontier_.At(bytes) : nullptr) {
        again = best->again;
        Try(again, &trace);
      }
      const bool passed = Lower(again, trace, static_cast<int64_t>(kPast * target), keep);
      if (!passed && trace.peak > bytes) break;
      Trim(again, trace, bytes);
    }
  }

  // Small graphs: random flips of a few candidates at a time, from the choices of the frontier.
  void FlipAtRandom() {
    constexpr size_t kMostCandidates = 24, kFlips = 5;
    constexpr int kRounds = 100, kTries = 400;
    const auto& nodes = model_.candidates();
    if (nodes.size() > kMostCandidates) return;
    std::mt19937 random(1);
    RecomputeTrace trace;
    for (int round = 0; round < kRounds && simulations_left_ > 0; ++round) {
      const std::vector<RecomputeChoice> choices = frontier_.All();
      for (int i = 0; i < kTries; ++i) {
        Again again = choices[random() % choices.size()].again;
        for (size_t flips = 1 + random() % kFlips; flips > 0; --flips) {
          Repeats& repeats = again[nodes[random() % nodes.size()]];
          repeats = repeats.any() ? Repeats() : Repeats::Once();
        }
        Try(again, &trace);
      }
    }
  }

  // Nodes whose results are made anew from a node of the backward pass on, or no longer.
  struct Move {
    std::vector<int32_t> nodes;
    int32_t from = 0;
    bool add = true;
    double worth = 0;
  };

  // By life: the first step behind the peak that reads it; 0: none, or the peak's step reads it too.
  static std::vector<int32_t> NextReads(const RecomputeTrace& t) {
    std::vector<int32_t> next(t.lives.size(), 0);
    for (auto step = static_cast<int32_t>(t.runs.size()); --step >= t.peak_step;) {
      for (int32_t i = t.reads_of[step]; i < t.reads_of[step + 1]; ++i) next[t.reads[i]] = step == t.peak_step ? 0 : step;
    }
    return next;
  }

  // Moves that can lower what is alive at the peak: what waits across it is made anew by its next reader, with or without the operands
  // that would have to be kept for it; clones that are made too early are not made then.
  std::vector<Move> MovesAt(const Again& again, const RecomputeTrace& t) const {
    constexpr size_t kMost = 24;
    const std::vector<int32_t> next = NextReads(t);
    std::vector<Move> moves;
    int32_t last = -1;  // results of one run stand together: one move for all of them
    for (size_t i = 0; i < t.lives.size(); ++i) {
      const RecomputeTrace::Life& life = t.lives[i];
      const int32_t n = model_.producer(life.root);
      if (!life.Covers(t.peak_step) || !is_candidate_[n] || model_.IsSide(life.root)) continue;
      const auto bytes = static_cast<double>(model_.bytes(life.root));
      const RecomputeTrace::Run& made = t.runs[life.first];
      if (life.clone) moves.push_back({{n}, again[n][again[n].At(made.late) - 1], false, bytes * 1e3});
      const int32_t from = next[i] == 0 ? -1 : t.runs[next[i]].late;
      if (life.first == t.peak_step || from < 0) continue;
      const double worth = bytes / (model_.seconds(n) + kNoTime);
      if (life.first == last && moves.back().add && moves.back().nodes[0] == n) {
        moves.back().from = std::min(moves.back().from, from);
        moves.back().worth += worth;
      } else {
        moves.push_back({{n}, from, true, worth});
      }
      last = life.first;
    }
    std::stable_sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) { return a.worth > b.worth; });
    if (moves.size() > kMost) moves.resize(kMost);
    for (size_t i = 0, count = moves.size(); i < count; ++i) {
      if (moves[i].add) moves.push_back({WithOperands(t, moves[i]), moves[i].from});
    }
    return moves;
  }

  // The node of the move and all of its operands' producers that nothing keeps until then.
  std::vector<int32_t> WithOperands(const RecomputeTrace& t, const Move& move) const {
    const int32_t then = t.StepOf(move.from);
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
    int32_t life = t.newest[root];
    while (life >= 0 && !t.lives[life].Covers(step)) life = t.lives[life].before;
    return life >= 0;
  }

  static void Apply(const Move& move, Again* again) {
    for (int32_t n : move.nodes) {
      if (move.add) {
        (*again)[n].Add(move.from);
      } else {
        (*again)[n].Remove(move.from);
      }
    }
  }

  // Flips what lowers the excess most per second. False where it cannot be brought to the target.
  bool Lower(Again& again, RecomputeTrace& t, int64_t target, int64_t keep) {
    RecomputeTrace next;
    while (t.peak > target && simulations_left_ > keep) {
      const double excess = t.Excess(target);
      std::vector<Move> moves = MovesAt(again, t);
      for (Move& move : moves) {
        Again changed = again;
        Apply(move, &changed);
        Try(changed, &next);
        const double gain = excess - next.Excess(target);
        move.worth = gain <= 0 ? 0 : gain / std::max(kNoTime, next.extra_seconds - t.extra_seconds);
      }
      std::stable_sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) { return a.worth > b.worth; });
      if (!ApplyBest(moves, target, again, t)) return false;
    }
    return t.peak <= target;
  }

  // The best move, and others nearly as good that still help after it: equal blocks are flipped together.
  bool ApplyBest(const std::vector<Move>& moves, int64_t target, Again& again, RecomputeTrace& t) {
    constexpr double kNearly = 0.7;
    RecomputeTrace next;
    bool any = false;
    for (const Move& move : moves) {
      if (move.worth <= 0 || move.worth < kNearly * moves[0].worth || t.peak <= target) break;
      Again changed = again;
      Apply(move, &changed);
      Try(changed, &next);
      if (next.Excess(target) >= t.Excess(target)) continue;
      again = std::move(changed);
      std::swap(t, next);
      any = true;
    }
    return any;
  }

  // Takes back whatever the limit allows, what costs most time first.
  void Trim(Again& again, RecomputeTrace& t, int64_t limit) {
    std::vector<Move> moves;
    for (int32_t n : model_.candidates()) {
      for (size_t i = 0; i < again[n].count(); ++i) moves.push_back({{n}, again[n][i], false, model_.seconds(n)});
    }
    std::stable_sort(moves.begin(), moves.end(), [&](const Move& a, const Move& b) { return a.worth > b.worth; });
    if (std::ssize(moves) > most_taken_back_) moves.resize(most_taken_back_);
    RecomputeTrace next;
    for (const Move& move : moves) {
      const Repeats before = again[move.nodes[0]];
      Apply(move, &again);
      Try(again, &next);
      if (next.peak <= limit && next.extra_seconds <= t.extra_seconds) {
        std::swap(t, next);
      } else {
        again[move.nodes[0]] = before;
      }
    }
  }

  const RecomputeModel& model_;
  const Cutter cutter_;
  std::vector<bool> is_candidate_;  // by node
  RecomputeTrace base_;
  std::vector<Again> cuts_;         // under one price for all bytes
  Frontier frontier_;
  int64_t simulations_left_, cuts_left_, most_taken_back_;
};

RecomputeChoice Simulated(const RecomputeModel& model, Again again) {
  RecomputeTrace trace;
  model.Simulate(again, &trace);
  return {std::move(again), trace.peak, trace.extra_seconds};
}

}  // namespace

RecomputeChoice RecomputeCheap(const RecomputeModel& model) {
  Again again(model.graph().nodes().size());
  for (int32_t n : model.candidates()) again[n] = IsExpensive(model, n) ? Repeats() : Repeats::Once();
  return Simulated(model, std::move(again));
}

// Borders: in each of `segments` stretches of equal bytes, the place with the least crossing it. The last stretch is kept.
RecomputeChoice RecomputeSegments(const RecomputeModel& model, int segments) {
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
  Again again(model.graph().nodes().size());
  std::vector<size_t> segment(model.graph().nodes().size(), 0);
  for (size_t i = 0, s = 0; i < nodes.size(); ++i) {
    segment[nodes[i]] = s;
    if (s < borders.size()) again[nodes[i]] = Repeats::Once();
    if (s < borders.size() && i == borders[s]) ++s;
  }
  for (int32_t n : nodes) {  // what crosses a border is kept
    for (ValueId r : model.operands(n)) {
      if (segment[model.producer(r)] != segment[n]) again[model.producer(r)] = Repeats();
    }
  }
  return Simulated(model, std::move(again));
}

RecomputeChoice RecomputeSqrt(const RecomputeModel& model) {
  const auto& nodes = model.candidates();
  const auto expensive = std::count_if(nodes.begin(), nodes.end(), [&](int32_t n) { return IsExpensive(model, n); });
  return RecomputeSegments(model, std::max(2, static_cast<int>(std::ceil(std::sqrt(static_cast<double>(expensive))))));
}

std::vector<RecomputeChoice> RecomputeFrontier(const RecomputeModel& model) { return Search(model).Run(); }

}  // namespace onnxtrain
