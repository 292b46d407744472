#include "backends/schedule.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "frontend/base/log.h"

namespace onnxtrain {
namespace {

using Cost = std::array<int64_t, 2>;

// The change of live bytes if a node runs next.
struct MemoryEffect {
  int64_t peak = 0;  // while it runs
  int64_t net = 0;   // afterwards
};

using Rule = Cost (*)(const MemoryEffect&);

constexpr Rule kRules[] = {
    [](const MemoryEffect&) { return Cost{}; },
    [](const MemoryEffect& e) {
      return Cost{e.net > 0, 0};
    },
    [](const MemoryEffect& e) {
      return Cost{e.peak, e.net};
    },
    [](const MemoryEffect& e) {
      return Cost{e.net, e.peak};
    },
};

// Limits the ready nodes that are compared, in list order, so that wide graphs stay cheap.
constexpr int kLookahead = 256;

bool IsAlias(const Dataflow& flow, int32_t node) {
  const ValueId output = flow.graph->nodes()[node].outputs[0];
  return flow.root[output] != output;
}

// By node: does it compute a value in the arena from bound memory alone (packed weights, masks of a key)? Such a node
// can run at any time, and its result would only wait before it is needed: the search leaves it out.
std::vector<bool> FindSources(const Dataflow& flow) {
  std::vector<bool> sources(flow.rows.size(), false);
  const auto in_arena = [&](ValueId v) { return v != kNoValue && flow.in_arena(flow.root[v]); };
  for (int32_t n = 0; n < std::ssize(sources); ++n) {
    if (!flow.runs(n) || flow.after[n].empty()) continue;
    const Node& node = flow.graph->nodes()[n];
    sources[n] = std::none_of(node.inputs.begin(), node.inputs.end(), in_arena) &&
                 (IsAlias(flow, n) || std::all_of(node.outputs.begin(), node.outputs.end(), in_arena)) &&
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

  std::vector<int32_t> Run(Rule rule) {
    std::vector<int32_t> order;
    while (!ready_.empty()) {
      const int32_t node = Best(rule);
      EmitWithSources(node, &order);
      Finish(node);
    }
    const size_t all = std::count_if(flow_.rows.begin(), flow_.rows.end(), [](const OpRow* row) { return row; });
    CHECK_EQ(order.size(), all) << "the graph has a cycle";
    return order;
  }

 private:
  int32_t Best(Rule rule) {
    int32_t best = *ready_.begin();
    if (rule == kRules[0]) return best;
    Cost least = rule(GetEffectOnce(best));
    int looked_at = 0;
    for (int32_t node : ready_) {
      if (++looked_at > kLookahead) break;
      if (const Cost cost = rule(GetEffectOnce(node)); cost < least) {
        least = cost;
        best = node;
      }
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

  // Lists the arena groups that each node reads, once, without those of sources: they are live during it only.
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

  // The effect of a ready node changes only when it becomes the last reader of a group.
  const MemoryEffect& GetEffectOnce(int32_t node) {
    std::optional<MemoryEffect>& effect = effects_[node];
    if (!effect) effect = GetMemoryEffect(node);
    return *effect;
  }

  MemoryEffect GetMemoryEffect(int32_t node) const {
    if (IsAlias(flow_, node)) return {};
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
    ready_.erase(node);
    for (ValueId r : read_groups_[node]) {
      if (IsAlias(flow_, node) || --unread_[r] != 1) continue;
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
  std::vector<std::optional<MemoryEffect>> effects_;  // by node, where up to date
  std::set<int32_t> ready_;
};

}  // namespace

std::vector<std::vector<int32_t>> CandidateOrders(const Dataflow& flow, const std::vector<size_t>& workspace) {
  const std::vector<bool> sources = FindSources(flow);
  std::vector<std::vector<int32_t>> orders;
  for (Rule rule : kRules) {
    auto order = Scheduler(flow, workspace, sources).Run(rule);
    if (std::find(orders.begin(), orders.end(), order) == orders.end()) orders.push_back(std::move(order));
  }
  return orders;
}

}  // namespace onnxtrain
