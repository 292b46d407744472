#include "backends/node_order.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "frontend/base/log.h"

namespace onnxtrain {
namespace {

using Cost = std::array<int64_t, 2>;

// Change of the live bytes if a node runs next.
struct MemoryEffect {
  int64_t peak = 0;  // while it runs
  int64_t net = 0;   // afterwards
};

struct Rule {
  Cost (*cost)(const MemoryEffect&);
  bool by_unit = false;  // units that do not raise the peak count as one node (Scheduler::FindUnit)
};

constexpr Cost InListOrder(const MemoryEffect&) { return {}; }
constexpr Cost FreeFirst(const MemoryEffect& e) { return {e.net > 0, 0}; }
// Scalars of a schedule come before the updates that read them.
constexpr Cost FreeOrTinyFirst(const MemoryEffect& e) {
  constexpr int64_t kTiny = 4096;
  return {e.net > kTiny, 0};
}
constexpr Cost LowestPeak(const MemoryEffect& e) { return {e.peak, e.net}; }
constexpr Cost LargestRelease(const MemoryEffect& e) { return {e.net, e.peak}; }

constexpr Rule kRules[] = {{InListOrder}, {FreeFirst}, {FreeOrTinyFirst, true}, {LowestPeak}, {LargestRelease}};

// Maximum number of ready nodes that are compared, in list order; bounds the cost of wide graphs.
constexpr int kLookahead = 256;
// Maximum number of units that are tried at a time, and of nodes in a unit.
constexpr int kMostUnits = 16;
constexpr size_t kLongestUnit = 24;

// Returns, by node, true for sources: nodes that compute a value in the arena from bound memory only (packed weights,
// masks of a key). A source can run at any time, best right before its first user: the search skips it.
std::vector<bool> FindSources(const Dataflow& flow) {
  std::vector<bool> sources(flow.rows.size(), false);
  const auto in_arena = [&](ValueId v) { return v != kNoValue && flow.in_arena(flow.root[v]); };
  for (int32_t n = 0; n < std::ssize(sources); ++n) {
    if (!flow.runs(n) || flow.after[n].empty()) continue;
    const Node& node = flow.graph->nodes()[n];
    sources[n] = std::none_of(node.inputs.begin(), node.inputs.end(), in_arena) &&
                 (flow.IsView(n) || std::all_of(node.outputs.begin(), node.outputs.end(), in_arena)) &&
                 std::all_of(flow.before[n].begin(), flow.before[n].end(), [&](int32_t p) { return sources[p]; });
  }
  return sources;
}

class Scheduler {
 public:
  Scheduler(const Dataflow& flow, const std::vector<size_t>& workspace, const std::vector<bool>& sources)
      : flow_(flow), workspace_(workspace), sources_(sources) {
    const auto nodes = static_cast<int32_t>(flow.rows.size());
    missing_.resize(nodes);
    emitted_.resize(nodes);
    for (int32_t n = 0; n < nodes; ++n) {
      missing_[n] = static_cast<int32_t>(
          std::count_if(flow.before[n].begin(), flow.before[n].end(), [&](int32_t p) { return !sources[p]; }));
      if (flow.runs(n) && !sources[n] && missing_[n] == 0) ready_.insert(n);
    }
    unread_.resize(flow.root.size());
    for (size_t v = 0; v < flow.root.size(); ++v) unread_[v] = static_cast<int32_t>(flow.readers[v].size());
    FindReadGroups();
  }

  std::vector<int32_t> Run(const Rule& rule) {
    std::vector<int32_t> order;
    while (!ready_.empty()) {
      for (const int32_t node : FindBest(rule)) {
        EmitWithSources(node, &order);
        Finish(node);
      }
    }
    const size_t all = std::count_if(flow_.rows.begin(), flow_.rows.end(), [](const OpRow* row) { return row; });
    CHECK_EQ(order.size(), all) << "the graph has a cycle";
    return order;
  }

 private:
  // Nodes that run one after the other, and what they change together.
  struct Unit {
    std::vector<int32_t> nodes;
    MemoryEffect effect;
  };

  // Returns the nodes to run next.
  std::vector<int32_t> FindBest(const Rule& rule) {
    Unit best{{*ready_.begin()}, {}};
    if (rule.cost == InListOrder) return best.nodes;
    std::optional<Cost> least;
    int looked_at = 0, units = 0;
    for (int32_t node : ready_) {
      if (++looked_at > kLookahead) break;
      Unit unit{{node}, GetEffectOnce(node)};
      if (rule.by_unit && unit.effect.net > 0 && flow_.rows[node]->flops != nullptr && ++units <= kMostUnits) {
        Unit longer = FindUnit(node);
        if (live_ + longer.effect.peak <= highest_) unit = std::move(longer);
      }
      const Cost cost = rule.cost(unit.effect);
      if (least && cost >= *least) continue;
      least = cost;
      best = std::move(unit);
      if (cost == Cost{} && rule.cost != LowestPeak && rule.cost != LargestRelease) break;  // nothing costs less
    }
    return best.nodes;
  }

  // Returns a ready product and the nodes that can run after it without others, up to the next products; of these, as
  // many as leave the fewest live bytes.
  Unit FindUnit(int32_t head) {
    std::vector<int32_t> nodes = {head};
    std::map<int32_t, int32_t> missing;
    Unit best{nodes, GetEffectOnce(head)};
    MemoryEffect sum;
    size_t seen = 0;
    for (; seen < nodes.size(); ++seen) {
      const int32_t node = nodes[seen];
      const MemoryEffect effect = GetMemoryEffect(node);
      sum = {std::max(sum.peak, sum.net + effect.peak), sum.net + effect.net};
      for (ValueId r : read_groups_[node]) unread_[r] -= flow_.IsView(node) ? 0 : 1;
      if (sum.net < best.effect.net) best = {{nodes.begin(), nodes.begin() + static_cast<int64_t>(seen) + 1}, sum};
      for (int32_t next : flow_.after[node]) {
        const int32_t left = --missing.try_emplace(next, missing_[next]).first->second;
        if (left == 0 && flow_.rows[next]->flops == nullptr && nodes.size() < kLongestUnit) nodes.push_back(next);
      }
    }
    for (const int32_t node : nodes) {
      for (ValueId r : read_groups_[node]) unread_[r] += flow_.IsView(node) ? 0 : 1;
    }
    return best;
  }

  // Emits sources right before the first node that must run after them.
  void EmitWithSources(int32_t node, std::vector<int32_t>* order) {
    for (int32_t p : flow_.before[node]) {
      if (sources_[p] && !emitted_[p]) EmitWithSources(p, order);
    }
    emitted_[node] = true;
    order->push_back(node);
  }

  // Lists the arena groups that each node reads, without duplicates. Results of sources are left out, because they are
  // live only while their first user runs.
  void FindReadGroups() {
    read_groups_.resize(flow_.rows.size());
    std::vector<int32_t> last_reader(flow_.root.size(), -1);
    for (int32_t n = 0; n < std::ssize(read_groups_); ++n) {
      if (!flow_.runs(n)) continue;
      for (ValueId v : flow_.graph->nodes()[n].inputs) {
        const ValueId r = v == kNoValue ? kNoValue : flow_.root[v];
        if (r == kNoValue || !flow_.in_arena(r) || sources_[flow_.graph->value(r).node] || last_reader[r] == n)
          continue;
        last_reader[r] = n;
        read_groups_[n].push_back(r);
      }
    }
    effects_.resize(read_groups_.size());
  }

  // Caches the effect of a ready node, which changes only when the node becomes the last reader of a group.
  const MemoryEffect& GetEffectOnce(int32_t node) {
    std::optional<MemoryEffect>& effect = effects_[node];
    if (!effect) effect = GetMemoryEffect(node);
    return *effect;
  }

  MemoryEffect GetMemoryEffect(int32_t node) const {
    if (flow_.IsView(node)) return {};
    MemoryEffect e;
    const Graph& graph = *flow_.graph;
    const auto& outputs = graph.nodes()[node].outputs;
    int64_t kept = 0;
    for (ValueId v : outputs) {
      if (!flow_.in_arena(v)) continue;
      e.peak += graph.type(v).bytes();
      if (unread_[v] > 0 || flow_.is_output[v]) kept += graph.type(v).bytes();
    }
    e.net = kept;
    for (ValueId r : read_groups_[node]) {
      if (unread_[r] != 1 || flow_.is_output[r]) continue;
      e.net -= graph.type(r).bytes();
      const bool reused = flow_.in_arena(outputs[0]) && flow_.CanOverwrite(node, outputs[0], r) &&
                          graph.type(r).bytes() == graph.type(outputs[0]).bytes();
      if (reused) e.peak = 0;
    }
    if (!workspace_.empty()) e.peak += workspace_[node];
    return e;
  }

  void Finish(int32_t node) {
    const MemoryEffect effect = GetMemoryEffect(node);
    highest_ = std::max(highest_, live_ + effect.peak);
    live_ += effect.net;
    ready_.erase(node);
    for (ValueId r : read_groups_[node]) {
      if (flow_.IsView(node) || --unread_[r] != 1) continue;
      for (int32_t reader : flow_.readers[r]) effects_[reader].reset();
    }
    for (int32_t next : flow_.after[node]) {
      if (--missing_[next] == 0) ready_.insert(next);  // never a source: sources wait for sources only
    }
  }

  const Dataflow& flow_;
  const std::vector<size_t>& workspace_;
  const std::vector<bool>& sources_;
  std::vector<bool> emitted_;
  std::vector<int32_t> missing_;                      // by node: predecessors that have not run, without sources
  std::vector<int32_t> unread_;                       // by root: readers that have not run
  std::vector<std::vector<ValueId>> read_groups_;     // by node
  std::vector<std::optional<MemoryEffect>> effects_;  // by node; nullopt: out of date
  std::set<int32_t> ready_;
  int64_t live_ = 0, highest_ = 0;  // bytes now, and the most so far
};

}  // namespace

std::vector<std::vector<int32_t>> CandidateOrders(const Dataflow& flow, const std::vector<size_t>& workspace) {
  const std::vector<bool> sources = FindSources(flow);
  const bool meets_ranks = std::ranges::any_of(flow.rows, [](const OpRow* row) { return row && row->collective; });
  std::vector<std::vector<int32_t>> orders;
  for (const Rule& rule : kRules) {
    if (meets_ranks && rule.cost != InListOrder) continue;
    auto order = Scheduler(flow, workspace, sources).Run(rule);
    if (std::find(orders.begin(), orders.end(), order) == orders.end()) orders.push_back(std::move(order));
  }
  return orders;
}

}  // namespace onnxtrain
