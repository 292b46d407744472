#include "optim/memory/search.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace onnxtrain {
namespace {

constexpr int64_t kMaxBlocks = 40, kUnits = 400;  // kUnits: units of memory in the dynamic program
constexpr double kImpossible = std::numeric_limits<double>::infinity();

// One way to keep the inner values of a block.
struct Option {
  int inside = -1;     // index of the given schedule; −1: keeps everything
  int64_t kept = 0;    // bytes kept between the forward and the backward run
  int64_t peak = 0;    // bytes in the backward run, including `kept`
  double seconds = 0;  // of recomputation
};

struct Block {
  std::vector<int32_t> nodes;  // candidates
  int32_t from = 0;            // the first node of its backward pass
  int64_t input = 0;           // bytes that cross its start
  int64_t running = 0;         // peak bytes of a run that keeps only values that cross its end
  int64_t gradients = 0;       // live bytes of the backward pass when the block's begins
  double seconds = 0;          // of one run
  double inside_seconds = 0;   // of a run up to the last value that its backward pass reads
  std::vector<Option> options;
};

// Returns the candidates at which a block ends: few bytes cross, relative to those of the block, and no narrower cut
// follows soon.
std::vector<size_t> FindBlockEnds(const RecomputeCostModel& model) {
  const auto& nodes = model.candidates();
  const std::vector<int64_t> crossing = CrossingBytes(model);
  std::vector<int64_t> made(1, 0);
  for (int32_t n : nodes) {
    made.push_back(made.back());
    for (ValueId r : model.results(n)) made.back() += model.bytes(r);
  }
  std::vector<size_t> ends;
  int64_t since = 0;
  for (size_t i = 0; i + 1 < nodes.size(); ++i) {
    if (made[i + 1] - since < std::max(2 * crossing[i], made.back() / kMaxBlocks + 1)) continue;
    bool narrower = false;
    for (size_t j = i + 1; j < nodes.size() && made[j + 1] - made[i + 1] <= crossing[i]; ++j)
      narrower |= crossing[j] < crossing[i];
    if (narrower) continue;
    ends.push_back(i);
    since = made[i + 1];
  }
  return ends;
}

class Chain {
 public:
  Chain(const RecomputeCostModel& model, const std::vector<RecomputeSchedule>& inside)
      : model_(model), inside_(inside), block_(model.graph().nodes().size(), -1), last_reader_(block_) {
    model_.Simulate(RecomputeSchedule(block_.size()), &base_);
    MakeBlocks();
    if (blocks_.size() < 2) return;
    for (size_t b = blocks_.size(); b-- > 0;) FindBackwardBegin(static_cast<int32_t>(b));
    for (size_t b = 0; b < blocks_.size(); ++b) Measure(static_cast<int32_t>(b));
  }

  const std::vector<Block>& blocks() const { return blocks_; }
  int64_t peak() const { return base_.peak; }
  // Returns true if `node` is in a block before `cut` and a block at or after `cut` reads its result.
  bool Crosses(int32_t node, int32_t cut) const { return block_[node] < cut && last_reader_[node] >= cut; }
  bool IsInner(int32_t node) const { return last_reader_[node] <= block_[node]; }

 private:
  void MakeBlocks() {
    const std::vector<size_t> ends = FindBlockEnds(model_);
    const auto& nodes = model_.candidates();
    blocks_.resize(ends.size() + 1);
    for (size_t i = 0, b = 0; i < nodes.size(); ++i) {
      block_[nodes[i]] = last_reader_[nodes[i]] = static_cast<int32_t>(b);
      blocks_[b].nodes.push_back(nodes[i]);
      blocks_[b].seconds += model_.seconds(nodes[i]);
      if (b < ends.size() && i == ends[b]) ++b;
    }
    for (int32_t n : nodes) {
      for (ValueId r : model_.operands(n))
        last_reader_[model_.producer(r)] = std::max(last_reader_[model_.producer(r)], block_[n]);
    }
    for (int32_t n : nodes) {
      for (int32_t b = block_[n] + 1; b <= last_reader_[n]; ++b) blocks_[b].input += Bytes(n);
    }
  }

  int64_t Bytes(int32_t node) const {
    int64_t bytes = 0;
    for (ValueId r : model_.results(node)) bytes += model_.bytes(r);
    return bytes;
  }

  // Sets the first node of the block's backward pass: the first one, after the begin of the next block's backward pass,
  // that reads inner values of the block, or else values that cross its end.
  void FindBackwardBegin(int32_t b) {
    const bool is_last = b + 1 == std::ssize(blocks_);
    const int32_t behind = is_last ? model_.boundary() : blocks_[b + 1].from;
    int32_t inner = -1, end = -1;
    for (auto n = static_cast<int32_t>(model_.graph().nodes().size()); n-- > behind;) {
      for (ValueId r : model_.operands(n)) {
        const int32_t p = model_.producer(r);
        if (block_[p] != b) continue;
        if (IsInner(p)) inner = n;
        if (n > behind) end = n;
      }
    }
    blocks_[b].from = is_last ? behind : inner >= 0 ? inner : std::max(behind, end);
  }

  // Returns a schedule that recomputes only inner values of the block, either the choices of `choice` or, if null, all.
  RecomputeSchedule RecomputeOnlyInBlock(int32_t b, const RecomputeSchedule* choice) const {
    RecomputeSchedule recomputed(block_.size());
    for (int32_t n : blocks_[b].nodes) {
      if (IsInner(n) && (choice == nullptr || (*choice)[n].any())) recomputed[n] = Clones::Once();
    }
    return recomputed;
  }

  // Returns the bytes of earlier blocks that are saved for the backward pass.
  int64_t SavedBytesBefore(int32_t b) const {
    int64_t bytes = 0;
    for (const RecomputeTrace::LiveRange& range : base_.live_ranges) {
      const int32_t of = block_[model_.producer(range.root)];
      if (of >= 0 && of < b && range.last >= base_.backward) bytes += model_.bytes(range.root);
    }
    return bytes;
  }

  int64_t GradientsAt(int32_t node) const {
    const int32_t step = base_.FindStep(node);
    int64_t bytes = 0;
    for (const RecomputeTrace::LiveRange& range : base_.live_ranges) {
      if (model_.producer(range.root) >= model_.boundary() && range.first < step && range.last >= step)
        bytes += model_.bytes(range.root);
    }
    return bytes;
  }

  void Measure(int32_t b) {
    Block& block = blocks_[b];
    const int64_t before = SavedBytesBefore(b);
    RecomputeTrace t;
    model_.Simulate(RecomputeOnlyInBlock(b, nullptr), &t);
    block.inside_seconds = t.extra_seconds;
    block.gradients = GradientsAt(block.from);
    for (int32_t step = 0; step < t.backward; ++step) {
      if (block_[t.runs[step].node] == b) block.running = std::max(block.running, t.live[step] - before);
    }
    AddOption(b, -1, base_, before);
    for (int i = 0; i < std::ssize(inside_); ++i) {
      model_.Simulate(RecomputeOnlyInBlock(b, &inside_[i]), &t);
      AddOption(b, i, t, before);
    }
  }

  void AddOption(int32_t b, int inside, const RecomputeTrace& t, int64_t before) {
    Block& block = blocks_[b];
    Option option{.inside = inside, .seconds = t.extra_seconds};
    const int32_t until = b == 0 ? std::numeric_limits<int32_t>::max() : blocks_[b - 1].from;
    for (int32_t step = t.backward; step < std::ssize(t.runs); ++step) {
      if (t.runs[step].backward >= block.from && t.runs[step].backward < until)
        option.peak = std::max(option.peak, t.live[step] - before);
    }
    for (const RecomputeTrace::LiveRange& range : t.live_ranges) {
      const int32_t n = model_.producer(range.root);
      if (block_[n] == b && IsInner(n) && !range.clone && range.last >= t.backward)
        option.kept += model_.bytes(range.root);
    }
    const bool beaten = std::any_of(block.options.begin(), block.options.end(), [&](const Option& o) {
      return o.kept <= option.kept && o.peak <= option.peak && o.seconds <= option.seconds;
    });
    if (!beaten) block.options.push_back(option);
  }

  const RecomputeCostModel& model_;
  const std::vector<RecomputeSchedule>& inside_;
  std::vector<int32_t> block_;        // by node; −1: not a candidate
  std::vector<int32_t> last_reader_;  // by node: the last block that reads its results
  RecomputeTrace base_;
  std::vector<Block> blocks_;
};

// Solves the dynamic program. State (s, t, m): the blocks from s to t with m units of memory; their input is live and
// counted elsewhere.
class Program {
 public:
  Program(const Chain& chain, const std::vector<RecomputeSchedule>& inside)
      : chain_(chain),
        blocks_(chain.blocks()),
        inside_(inside),
        count_(std::ssize(blocks_)),
        unit_(chain.peak() / kUnits + 1) {
    best_.resize(count_ * count_ * (kUnits + 1));
    for (int64_t length = 1; length <= count_; ++length) {
      for (int64_t s = 0; s + length <= count_; ++s) {
        for (int64_t m = 0; m <= kUnits; ++m) Solve(s, s + length - 1, m);
      }
    }
  }

  std::vector<RecomputeSchedule> All(size_t nodes) const {
    std::vector<RecomputeSchedule> all;
    double before = -1;
    for (int64_t m = kUnits; m >= 0; --m) {
      const double seconds = At(0, count_ - 1, m).seconds;
      if (seconds == kImpossible) break;
      if (seconds > before) Write(0, count_ - 1, m, &all.emplace_back(nodes));
      before = seconds;
    }
    return all;
  }

 private:
  struct Best {
    double seconds = kImpossible;
    int32_t option = -1;  // option of block s, which runs once; or
    int32_t next = -1;    // keeps only values that cross to this block
  };

  const Best& At(int64_t s, int64_t t, int64_t m) const { return best_[(s * count_ + t) * (kUnits + 1) + m]; }
  int64_t Units(int64_t bytes) const { return (bytes + unit_ / 2) / unit_; }

  void Solve(int64_t s, int64_t t, int64_t m) {
    Best best;
    const Block& first = blocks_[s];
    for (size_t o = 0; o < first.options.size(); ++o) {
      const Option& option = first.options[o];
      if (Units(option.peak) > m) continue;
      const int64_t left = s == t ? 0 : m - Units(option.kept) - Units(blocks_[s + 1].input);
      if (left < 0) continue;
      const double seconds =
          option.seconds + (s == t ? first.inside_seconds : first.seconds + At(s + 1, t, left).seconds);
      if (seconds < best.seconds) best = {.seconds = seconds, .option = static_cast<int32_t>(o)};
    }
    double run = 0;
    int64_t running = 0;
    for (int64_t j = s + 1; j <= t; ++j) {
      run += blocks_[j - 1].seconds;
      running = std::max(running, blocks_[j - 1].running + (j - 1 == s ? 0 : blocks_[j - 1].input));
      const int64_t left = m - Units(blocks_[j].input);
      if (left < 0 || Units(running + blocks_[t].gradients) > m) continue;
      const double seconds = run + At(j, t, left).seconds + At(s, j - 1, m).seconds;
      if (seconds < best.seconds) best = {.seconds = seconds, .next = static_cast<int32_t>(j)};
    }
    best_[(s * count_ + t) * (kUnits + 1) + m] = best;
  }

  void Write(int64_t s, int64_t t, int64_t m, RecomputeSchedule* recomputed) const {
    const Best& best = At(s, t, m);
    if (best.next >= 0) {
      for (int64_t b = s; b < best.next; ++b) {
        for (int32_t n : blocks_[b].nodes) {
          if (!chain_.Crosses(n, best.next)) (*recomputed)[n].Add(blocks_[best.next - 1].from);
        }
      }
      Write(best.next, t, m - Units(blocks_[best.next].input), recomputed);
      return Write(s, best.next - 1, m, recomputed);
    }
    const Option& option = blocks_[s].options[best.option];
    for (int32_t n : blocks_[s].nodes) {
      if (option.inside >= 0 && chain_.IsInner(n) && inside_[option.inside][n].any())
        (*recomputed)[n].Add(blocks_[s].from);
    }
    if (s < t) Write(s + 1, t, m - Units(option.kept) - Units(blocks_[s + 1].input), recomputed);
  }

  const Chain& chain_;
  const std::vector<Block>& blocks_;
  const std::vector<RecomputeSchedule>& inside_;
  const int64_t count_, unit_;
  std::vector<Best> best_;
};

}  // namespace

std::vector<RecomputeSchedule> SolveChain(const RecomputeCostModel& model,
                                          const std::vector<RecomputeSchedule>& inside) {
  const Chain chain(model, inside);
  if (chain.blocks().size() < 2) return {};
  return Program(chain, inside).All(model.graph().nodes().size());
}

std::vector<int64_t> CrossingBytes(const RecomputeCostModel& model) {
  const auto& nodes = model.candidates();
  std::vector<int32_t> index(model.graph().nodes().size(), -1), last(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) index[nodes[i]] = last[i] = static_cast<int32_t>(i);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (ValueId r : model.operands(nodes[i])) {
      if (index[model.producer(r)] >= 0) last[index[model.producer(r)]] = static_cast<int32_t>(i);
    }
  }
  std::vector<int64_t> change(nodes.size() + 1, 0);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (ValueId r : model.results(nodes[i])) {
      change[i] += model.bytes(r);
      change[last[i]] -= model.bytes(r);
    }
  }
  for (size_t i = 1; i < change.size(); ++i) change[i] += change[i - 1];
  return change;
}

}  // namespace onnxtrain
