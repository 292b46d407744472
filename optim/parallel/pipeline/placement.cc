#include "optim/parallel/pipeline/placement.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "frontend/base/status.h"
#include "optim/step/program/optimize.h"

namespace onnxtrain {
namespace {

constexpr size_t kSmallWeight = 1024;        // bytes of a frozen weight that every stage may have
constexpr double kBackwardFactor = 2;        // time of a backward pass, in forward passes
constexpr double kLinkBytesPerSecond = 1e9;  // of a link between two stages
constexpr int kPassesOverLink = 2;           // activations forward, gradients back

bool IsPlaced(const Graph& graph, const GraphInput& input) {
  switch (input.kind) {
    case InputKind::kParameter:
    case InputKind::kState:
      return true;
    case InputKind::kFrozen:
      return graph.type(input.value).bytes() > kSmallWeight;
    default:
      return false;
  }
}

// The kinds of inputs that a value depends on.
struct ValueSources {
  bool feeds = false, weights = false;
  std::set<int32_t> inputs;  // that are placed, and reached through cloned nodes only
};

std::vector<ValueSources> SourcesOfInputs(const Graph& graph) {
  std::vector<ValueSources> sources(graph.values().size());
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const GraphInput& input = graph.inputs()[i];
    ValueSources& own = sources[input.value];
    own.weights = IsPlaced(graph, input);
    // Statistics change with every pass: their readers are never cloned.
    own.feeds = input.kind == InputKind::kFeed || input.kind == InputKind::kState;
    if (own.weights) own.inputs.insert(static_cast<int32_t>(i));
  }
  return sources;
}

}  // namespace

bool Placement::Holds(const std::string& weight, int stage) const {
  const auto found = weights.find(weight);
  return found == weights.end() || std::ranges::binary_search(found->second, stage);
}

int Placement::Owner(const std::string& weight) const {
  const auto found = weights.find(weight);
  return found == weights.end() ? 0 : found->second.front();
}

Dependencies::Dependencies(const Graph& forward) {
  std::vector<ValueSources> sources = SourcesOfInputs(forward);
  for (const Node& node : forward.nodes()) {
    ValueSources own;
    for (const ValueId v : node.inputs) {
      if (v == kNoValue) continue;
      own.feeds |= sources[v].feeds;
      own.weights |= sources[v].weights;
      own.inputs.insert(sources[v].inputs.begin(), sources[v].inputs.end());
    }
    cloned_.push_back(!(own.feeds && own.weights));
    weights_.emplace_back(own.inputs.begin(), own.inputs.end());
    if (!cloned_.back()) own.inputs.clear();
    for (const ValueId v : node.outputs) sources[v] = own;
  }
}

namespace {

// The nodes that are not cloned, in order.
struct Chain {
  std::vector<int32_t> nodes;
  std::vector<double> seconds;  // of those before each one, and of all: one more than nodes
  std::vector<double> bytes;    // of the values that a cut before each one passes on
  std::vector<size_t> cuts;     // where a stage may begin: nodes that read weights, but for the first
};

void AddCrossing(const Graph& graph, std::span<const ValueId> results, Chain* chain) {
  std::vector<int64_t> position(graph.values().size(), -1), last = position;
  for (size_t i = 0; i < chain->nodes.size(); ++i) {
    const Node& node = graph.nodes()[chain->nodes[i]];
    for (const ValueId v : node.outputs) position[v] = static_cast<int64_t>(i);
    for (const ValueId v : node.inputs) {
      if (v != kNoValue) last[v] = static_cast<int64_t>(i);
    }
  }
  const auto end = static_cast<int64_t>(chain->nodes.size());
  for (const ValueId v : results) last[v] = end;
  std::vector<double> change(end + 2);
  for (size_t v = 0; v < position.size(); ++v) {
    if (position[v] < 0 || last[v] <= position[v]) continue;
    const auto bytes = static_cast<double>(graph.type(static_cast<ValueId>(v)).bytes());
    change[position[v] + 1] += bytes;
    change[last[v] + 1] -= bytes;
  }
  double bytes = 0;
  for (int64_t i = 0; i < end; ++i) chain->bytes.push_back(bytes += change[i]);
}

Chain MakeChain(const Graph& graph, const Dependencies& dependencies, std::span<const ValueId> results) {
  Chain chain{.seconds = {0}};
  bool any = false;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    if (dependencies.IsCloned(n)) continue;
    if (!dependencies.Weights(n).empty() && std::exchange(any, true)) chain.cuts.push_back(chain.nodes.size());
    chain.nodes.push_back(static_cast<int32_t>(n));
    chain.seconds.push_back(chain.seconds.back() + (1 + kBackwardFactor) * NodeSeconds(graph, graph.nodes()[n]));
  }
  AddCrossing(graph, results, &chain);
  return chain;
}

// The seconds of the slowest stage, then the bytes that cuts send; compared in this order.
using CutCost = std::pair<double, double>;

// Returns where stages 1, 2 … begin, as indices into the chain, by dynamic programming over the cuts.
std::vector<size_t> ChooseCuts(const Chain& chain, int stages) {
  const size_t count = chain.cuts.size();
  const auto link = [&](size_t at) { return kPassesOverLink * chain.bytes[at] / kLinkBytesPerSecond; };
  const CutCost worst{std::numeric_limits<double>::infinity(), 0};
  // best[c] is the cost of the nodes before cut c in the current number of stages; `from` is the previous cut.
  std::vector<CutCost> best(count);
  for (size_t c = 0; c < count; ++c)
    best[c] = {chain.seconds[chain.cuts[c]] + link(chain.cuts[c]), chain.bytes[chain.cuts[c]]};
  std::vector<std::vector<size_t>> from(stages);
  for (int s = 2; s < stages; ++s) {
    std::vector<CutCost> next(count, worst);
    from[s].assign(count, 0);
    for (size_t c = 0; c < count; ++c) {
      for (size_t b = 0; b < c; ++b) {
        const size_t begin = chain.cuts[b], end = chain.cuts[c];
        const double seconds = chain.seconds[end] - chain.seconds[begin] + link(begin) + link(end);
        const CutCost cost{std::max(best[b].first, seconds), best[b].second + chain.bytes[end]};
        if (cost < next[c]) next[c] = cost, from[s][c] = b;
      }
    }
    best = std::move(next);
  }
  CutCost least = worst;
  size_t at = 0;
  for (size_t c = 0; c < count; ++c) {
    const size_t begin = chain.cuts[c];
    const CutCost cost{std::max(best[c].first, chain.seconds.back() - chain.seconds[begin] + link(begin)),
                       best[c].second};
    if (cost < least) least = cost, at = c;
  }
  std::vector<size_t> cuts;
  for (int s = stages - 1; s > 0; at = s > 1 ? from[s][at] : at, --s) cuts.insert(cuts.begin(), chain.cuts[at]);
  return cuts;
}

void Place(const Graph& graph, const Dependencies& dependencies, int32_t node, int stage, Placement* placement) {
  for (const int32_t input : dependencies.Weights(node)) {
    std::vector<int>& stages = placement->weights[graph.inputs()[input].name];
    if (stages.empty() || stages.back() != stage) stages.push_back(stage);
  }
}

// Weights that no loss reads still decay.
void PlaceUnread(const Graph& graph, Placement* placement) {
  for (const GraphInput& input : graph.inputs()) {
    if (input.kind == InputKind::kParameter || input.kind == InputKind::kState)
      placement->weights.try_emplace(input.name, std::vector<int>{0});
  }
}

absl::Status CheckStatistics(const Graph& graph, const Placement& placement) {
  for (const GraphInput& input : graph.inputs()) {
    if (input.kind == InputKind::kState && placement.weights.at(input.name).size() > 1)
      return Invalid("`pipeline`: the running statistics '", input.name, "' are updated in two stages");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Placement> PlaceWeights(const Graph& forward, std::span<const ValueId> results, int stages) {
  const Dependencies dependencies(forward);
  const Chain chain = MakeChain(forward, dependencies, results);
  if (std::ssize(chain.cuts) + 1 < stages)
    return Invalid("`pipeline` ", stages, ": only ", chain.nodes.empty() ? 0 : chain.cuts.size() + 1,
                   " nodes of the model read weights");
  std::vector<size_t> ends = stages > 1 ? ChooseCuts(chain, stages) : std::vector<size_t>();
  Placement placement{.stages = stages};
  for (const size_t cut : ends) placement.passed_values.push_back(static_cast<int64_t>(chain.bytes[cut]));
  ends.push_back(chain.nodes.size());
  for (size_t s = 0, i = 0; s < ends.size(); ++s) {
    placement.seconds.push_back(chain.seconds[ends[s]] - chain.seconds[i]);
    for (; i < ends[s]; ++i) Place(forward, dependencies, chain.nodes[i], static_cast<int>(s), &placement);
  }
  PlaceUnread(forward, &placement);
  RETURN_IF_ERROR(CheckStatistics(forward, placement));
  return placement;
}

namespace {

// Returns the first stage from `stage` on that holds all of these weights; -1: none.
int FindStage(const Graph& graph, const std::vector<int32_t>& weights, const Placement& placement, int stage) {
  const auto holds = [&](int s) {
    return std::ranges::all_of(weights, [&](int32_t w) { return placement.Holds(graph.inputs()[w].name, s); });
  };
  while (stage < placement.stages && !holds(stage)) ++stage;
  return stage < placement.stages ? stage : -1;
}

}  // namespace

absl::StatusOr<std::vector<int>> AssignStages(const Graph& forward, const Placement& placement) {
  const Dependencies dependencies(forward);
  std::vector<int> stages(forward.nodes().size(), kAnyStage);
  for (size_t n = 0; n < stages.size(); ++n) {
    if (dependencies.IsCloned(n)) continue;
    const Node& node = forward.nodes()[n];
    int stage = 0;
    for (const ValueId v : node.inputs) {
      if (v != kNoValue && !forward.IsInput(v)) stage = std::max(stage, stages[forward.value(v).node]);
    }
    stages[n] = FindStage(forward, dependencies.Weights(n), placement, stage);
    if (stages[n] < 0)
      return absl::UnimplementedError(
          StrCat("`pipeline`: ", NodeTag(node), "reads weights of stage ", stage, " and of an earlier one"));
  }
  return stages;
}

}  // namespace onnxtrain
