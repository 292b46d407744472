#include "frontend/passes/simplify.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "frontend/passes/match.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain {

Val NodeContext::Fit(Val v) const {
  if (!v.valid() || v.dtype() != out.dtype) return Val();
  return BroadcastShapes(v.shape(), out.shape) == out.shape ? Expand(v, out.shape) : Val();
}

Val MatchInput(Val v, std::string_view op, size_t i) {
  const Node* node = v.valid() ? v.b().graph().producer(v.id()) : nullptr;
  return node != nullptr && node->op == op && i < node->inputs.size() ? v.b().Wrap(node->inputs[i]) : Val();
}

Attrs ProducerAttrs(Val v) {
  const Node* node = v.b().graph().producer(v.id());
  return node == nullptr ? Attrs() : node->attrs;
}

std::optional<double> FindSplat(const Graph& graph, ValueId v) {
  const Node* node = v == kNoValue ? nullptr : graph.producer(v);
  if (node != nullptr && node->inputs.size() == 1 && (node->op == "Expand" || FindOp(node->op)->view))
    return FindSplat(graph, node->inputs[0]);
  const HostTensor* t = graph.FindConstant(v);
  if (t == nullptr || t->size() == 0) return std::nullopt;
  const auto bytes = t->bytes();
  const size_t size = DTypeSize(t->dtype());
  if (std::memcmp(bytes.data(), bytes.data() + size, bytes.size() - size) != 0) return std::nullopt;
  return t->At(0);
}

bool IsSplat(Val v, double value) { return FindSplat(v) == value; }

namespace {

using RuleTable = std::unordered_map<std::string_view, std::vector<const Rule*>>;  // in the order of the families

const RuleTable& Rules() {
  static const RuleTable* table = [] {
    auto* t = new RuleTable;
    for (auto family : {ArithmeticRules, ShapeRules}) {
      for (const Rule& rule : family()) (*t)[rule.op].push_back(&rule);
    }
    return t;
  }();
  return *table;
}

Val FirstMatch(const NodeContext& site) {
  for (std::string_view op : {std::string_view(site.node.op), std::string_view()}) {
    const auto rules = Rules().find(op);
    if (rules == Rules().end()) continue;
    for (const Rule* rule : rules->second) {
      if (const Val result = rule->apply(site)) return result;
    }
  }
  return Val();
}

}  // namespace

absl::StatusOr<Graph> Simplify(const Graph& graph) {
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    if (node.outputs.size() != 1) return std::nullopt;
    NodeContext site{r.b(), node, {}, graph.type(node.outputs[0])};
    site.in.reserve(node.inputs.size());
    for (ValueId v : node.inputs) site.in.push_back(r.Map(v));
    const Val result = FirstMatch(site);
    if (!result.valid()) return std::nullopt;
    return std::vector<Val>{result};
  });
}

namespace {

constexpr size_t kMaxExpandBytes = 256;

size_t OutputBytes(const Graph& graph, const Node& node) {
  size_t bytes = 0;
  for (ValueId v : node.outputs) bytes += graph.type(v).bytes();
  return bytes;
}

// Can the node be folded once its inputs are constants?
bool CanFold(const Graph& graph, const Node& node, size_t max_bytes) {
  const OpRow* row = FindOp(node.op);
  return row != nullptr && row->evaluate != nullptr && !node.inputs.empty() &&
         OutputBytes(graph, node) <= (node.op == "Expand" ? kMaxExpandBytes : max_bytes);
}

}  // namespace

bool HasFoldableNodes(const Graph& graph, size_t max_bytes) {
  const auto known = [&](ValueId v) { return v == kNoValue || graph.FindConstant(v) != nullptr; };
  return std::ranges::any_of(graph.nodes(), [&](const Node& node) {
    return std::ranges::all_of(node.inputs, known) && CanFold(graph, node, max_bytes);
  });
}

absl::StatusOr<Graph> FoldConstants(const Graph& graph, size_t max_bytes, HostBudget* budget) {
  HostBudget own;
  if (budget == nullptr) budget = &own;
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    if (!CanFold(graph, node, max_bytes)) return std::nullopt;
    std::vector<const HostTensor*> inputs;
    std::vector<Type> types;
    for (ValueId v : node.inputs) {
      inputs.push_back(r.Map(v).constant());
      if (v != kNoValue && inputs.back() == nullptr) return std::nullopt;
    }
    if (!budget->Spend(graph, node)) return std::nullopt;
    for (ValueId v : node.outputs) types.push_back(graph.type(v));
    std::vector<Val> results;
    for (HostTensor& tensor : FindOp(node.op)->evaluate({node.attrs, inputs, types})) {
      results.push_back(r.b().Constant(std::move(tensor)));
    }
    return results;
  });
}

}  // namespace onnxtrain
