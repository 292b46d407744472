#include "frontend/passes/simplify.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "frontend/ops/simplify/simplify.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain {

namespace {

// --- Elementwise operators

bool ReadsExpand(const SimplifyContext& s) {
  return std::ranges::any_of(s.in, [](Val v) { return MatchInput(v, "Expand").valid(); });
}

// Removes an Expand before elementwise operators, which broadcast.
Val ElementwiseOfExpand(const SimplifyContext& s) {
  if (s.in.size() < 2 || !ReadsExpand(s)) return Val();
  for (size_t i = 0; i < s.in.size(); ++i) {
    const Val x = MatchInput(s.in[i], "Expand");
    if (!x) continue;
    Shape shape = x.shape();
    for (size_t k = 0; k < s.in.size(); ++k) {
      if (k == i) continue;
      if (!s.in[k].valid()) return Val();
      const auto both = BroadcastShapes(shape, s.in[k].shape());
      if (!both.has_value()) return Val();
      shape = *both;
    }
    if (shape != s.out.shape) continue;
    std::vector<Val> in = s.in;
    in[i] = x;
    if (const Val y = s.Try(in, s.out.shape)) return y;
  }
  return Val();
}

// f(Expand(x)) → Expand(f(x)), also if the other operands are scalars: computes f on fewer elements.
Val ExpandOfElementwise(const SimplifyContext& s) {
  if (!ReadsExpand(s)) return Val();
  std::vector<Val> in = s.in;
  Shape shape;
  bool any = false;
  for (Val& v : in) {
    if (!v.valid()) return Val();
    if (v.type().elements() == 1 && v.rank() <= 1) continue;
    const Val x = MatchInput(v, "Expand");
    if (!x || any) return Val();
    v = x;
    shape = x.shape();
    any = true;
  }
  return any ? s.Fit(s.Try(in, shape)) : Val();
}

Val SimplifyNode(const SimplifyContext& s) {
  const OpRow* row = FindOp(s.node.op);
  if (row == nullptr) return Val();
  if (row->simplify != nullptr) {
    if (const Val result = row->simplify(s)) return result;
  }
  return row->elementwise ? FirstOf<ElementwiseOfExpand, ExpandOfElementwise>(s) : Val();
}

}  // namespace

absl::StatusOr<Graph> Simplify(const Graph& graph) {
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    if (node.outputs.size() != 1) return std::nullopt;
    SimplifyContext site{r.b(), node, {}, graph.type(node.outputs[0])};
    site.in.reserve(node.inputs.size());
    for (ValueId v : node.inputs) site.in.push_back(r.Map(v));
    const Val result = SimplifyNode(site);
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
