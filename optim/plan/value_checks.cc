#include "optim/plan/value_checks.h"

#include <algorithm>
#include <map>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

using OpClass = bool (*)(const OpRow&);

bool TestsForNan(const OpRow& row) { return row.name == "IsNaN"; }

bool MovesElements(const OpRow& row) { return row.moves_data || row.copies || row.selects; }

// Moves elements, or is a sum, product or power.
bool MovesOrCombines(const OpRow& row) { return MovesElements(row) || (row.arithmetic && row.inputs.min == 2); }

bool MultipliesByWeight(const OpRow& row) {
  return std::ranges::any_of(row.init.roles, [](WeightRole role) {
    return role >= WeightRole::kMatrix && role <= WeightRole::kRecurrentMatrix;
  });
}

// Whether the one output has all elements of the one input: a view, a repetition, another order.
bool KeepsAllElements(const Graph& graph, const Node& node) {
  return FindOp(node.op)->moves_data && node.inputs.size() == 1 &&
         graph.type(node.outputs[0]).elements() >= graph.type(node.inputs[0]).elements();
}

// Finds, by value, what reaches one of the operators as a first operand, through the others.
std::vector<bool> FindReaching(const Graph& graph, OpClass through, OpClass is_target) {
  std::vector<bool> reaching(graph.values().size(), false);
  for (size_t n = graph.nodes().size(); n-- > 0;) {
    const Node& node = graph.nodes()[n];
    if (node.inputs.empty()) continue;
    const OpRow& row = *FindOp(node.op);
    if (is_target(row) && node.inputs[0] != kNoValue) reaching[node.inputs[0]] = true;
    if (!through(row) || std::ranges::none_of(node.outputs, [&](ValueId v) { return reaching[v]; })) continue;
    for (ValueId v : node.inputs) {
      if (v != kNoValue) reaching[v] = true;
    }
  }
  return reaching;
}

class RangeFinder {
 public:
  explicit RangeFinder(const Graph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes()) {
      if (node.op != "Gather" && node.op != "GatherElements") continue;
      const int64_t n = graph.type(node.inputs[0]).shape[node.attrs.Int("axis")];
      const ValueId table = node.inputs[0];
      const std::string name =
          graph.IsInput(table) ? graph.inputs()[graph.value(table).index].name : StrCat(node.op, " ", *node.source);
      Trace(node.inputs[1], {.min = -static_cast<double>(n), .max = static_cast<double>(n - 1)}, name, n);
    }
  }

  std::optional<ValueRange> Find(const std::string& feed) const {
    const auto found = ranges_.find(feed);
    return found == ranges_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  // Walks back from indices to the feed that they come from; constants that are added move the range.
  void Trace(ValueId v, ValueRange range, const std::string& table, int64_t rows) {
    while (!graph_.IsInput(v)) {
      const Node* node = graph_.producer(v);
      if (node == nullptr || node->inputs.empty()) return;
      if (KeepsAllElements(graph_, *node)) {
        v = node->inputs[0];
      } else if (!UndoSum(*node, &v, &range)) {
        return;
      }
    }
    const GraphInput& input = graph_.inputs()[graph_.value(v).index];
    if (input.kind != InputKind::kFeed) return;
    range.what = StrCat("the ", rows, " rows of '", table, "': ", range.min, " to ", range.max,
                        ", where negative ones count from the end");
    const auto [it, fresh] = ranges_.emplace(input.name, range);
    if (fresh) return;
    const double low = std::max(it->second.min, range.min), high = std::min(it->second.max, range.max);
    if (high < it->second.max) it->second.what = range.what;
    it->second.min = low;
    it->second.max = high;
  }

  bool UndoSum(const Node& node, ValueId* v, ValueRange* range) const {
    if (node.op != "Add" && node.op != "Sub") return false;
    const bool first = node.op == "Add" && graph_.FindConstant(node.inputs[0]) != nullptr;
    const HostTensor* constant = graph_.FindConstant(node.inputs[first ? 0 : 1]);
    if (constant == nullptr || constant->size() != 1) return false;
    const double offset = node.op == "Add" ? constant->At(0) : -constant->At(0);
    range->min -= offset;
    range->max -= offset;
    *v = node.inputs[first ? 1 : 0];
    return true;
  }

  const Graph& graph_;
  std::map<std::string, ValueRange> ranges_;
};

}  // namespace

void AddValueChecks(const ImportedModel& model, std::vector<FeedSpec>* feeds) {
  const RangeFinder ranges(model.graph);
  const std::vector<bool> tested = FindReaching(model.graph, MovesOrCombines, TestsForNan);
  for (FeedSpec& feed : *feeds) {
    const GraphInput* input = model.graph.FindInput(feed.feed);
    if (input == nullptr) continue;
    feed.range = ranges.Find(feed.feed);
    feed.allow_nan = tested[input->value];
  }
}

std::vector<bool> FindUnscaled(const Graph& graph) { return FindReaching(graph, MovesElements, MultipliesByWeight); }

}  // namespace onnxtrain
