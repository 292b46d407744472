

#include "backends/cpu/lower/passes.h"
#include "backends/cpu/ops/ops.h"
#include "frontend/base/status.h"
#include "frontend/passes/eliminate.h"
#include "frontend/passes/pass.h"

namespace onnxtrain::cpu {

absl::StatusOr<FusedGraph> FuseKernels(const Graph& legal) {
  ValueMap epilogues, live, chains, codes, rest;
  const Pass passes[] = {
      {"fuse_epilogues", [&](const Graph& g) { return FuseEpilogues(g, &epilogues); }},
      {"dce", [&](const Graph& g) { return Dce(g, {}, &live); }},
      {"fuse_elementwise", [&](const Graph& g) { return FuseElementwise(g, &chains); }},
      {"fuse_codes", [&](const Graph& g) { return FuseCodes(g, &codes); }},
      {"dce", [&](const Graph& g) { return Dce(g, {}, &rest); }},
  };
  ASSIGN_OR_RETURN(Graph graph, RunPasses(legal, passes));
  for (ValueId& v : epilogues) {
    for (const ValueMap* next : {&live, &chains, &codes, &rest}) v = v == kNoValue ? v : (*next)[v];
  }
  return FusedGraph{std::move(graph), std::move(epilogues)};
}

absl::StatusOr<Graph> FuseGraph(const Graph& legal) {
  const Pass passes[] = {
      {"fuse_epilogues", [](const Graph& g) { return FuseEpilogues(g); }},
      DcePass(),
      {"fuse_norms", FuseNorms},
      DcePass(),
      {"fuse_elementwise", [](const Graph& g) { return FuseElementwise(g); }},
      {"fuse_codes", [](const Graph& g) { return FuseCodes(g); }},
      DcePass(),
  };
  return RunPasses(legal, passes);
}

bool IsOnlyRounded(const Pattern& pattern, ValueId v) {
  return !pattern.IsOutput(v) && !pattern.users(v).empty() && std::ranges::all_of(pattern.users(v), [&](int32_t n) {
    const Node& user = pattern.graph().nodes()[n];
    return pattern.BeforeCast(user.outputs[0], DType::kFloat32, DType::kBFloat16) != kNoValue;
  });
}

ValueId BeforeCasts(const Pattern& pattern, ValueId v) {
  const Graph& graph = pattern.graph();
  const Node* cast = pattern.Producer(v, "Cast");
  const bool skips =
      cast != nullptr && IsMultiplied(graph.type(v).dtype) && IsMultiplied(graph.type(cast->inputs[0]).dtype);
  return skips ? BeforeCasts(pattern, cast->inputs[0]) : v;
}

ValueId SkipUpcast(const Pattern& pattern, ValueId v) {
  const ValueId narrow = pattern.BeforeCast(v, DType::kBFloat16, DType::kFloat32);
  return narrow == kNoValue ? v : narrow;
}

bool IsPlainSum(const Graph& graph, const Node& node) {
  const Type& type = graph.type(node.outputs[0]);
  return node.op == "Add" && type.dtype == DType::kFloat32 && graph.type(node.inputs[0]) == type &&
         graph.type(node.inputs[1]) == type;
}

bool ProductChain::IsBf16(const Graph& graph) const { return graph.type(node->inputs[0]).dtype == DType::kBFloat16; }

namespace {

bool IsBias(const Graph& graph, ValueId bias, ValueId sum, ValueId product) {
  const Shape shape = PhysicalShape(graph.type(bias)), y = PhysicalShape(graph.type(sum));
  return y == PhysicalShape(graph.type(product)) && !shape.empty() && shape.back() == y.back() &&
         NumElements(shape) == y.back();
}

bool KeepsColumns(const Graph& graph, const Node& view) {
  const Shape x = PhysicalShape(graph.type(view.inputs[0])), y = PhysicalShape(graph.type(view.outputs[0]));
  return !x.empty() && !y.empty() && x.back() == y.back();
}

// The epilogues that FindProduct may match.
struct AllowedEpilogue {
  bool bias = true, relu = true;
};

ProductChain FindProduct(const Pattern& p, ValueId v, ProductChain::Casts casts, AllowedEpilogue allowed) {
  const Graph& graph = p.graph();
  const Node* node = graph.producer(v);
  if (node == nullptr) return {};
  if (node->op == "MatMul" || (node->op == "cpu.MatMul" && node->inputs.size() == 2)) return {.node = node};
  const bool sole = p.HasOneUse(node->inputs.empty() ? v : node->inputs[0]);
  if (node->op == "cpu.View" && sole && KeepsColumns(graph, *node))
    return FindProduct(p, node->inputs[0], casts, allowed);
  if (node->op == "Cast" && sole && casts == ProductChain::kRounded &&
      IsMultiplied(graph.type(node->inputs[0]).dtype)) {
    const ProductChain inner = FindProduct(p, node->inputs[0], casts, allowed);
    return inner.node != nullptr && inner.IsBf16(graph) ? inner : ProductChain{};
  }
  if (node->op == "Relu" && sole && allowed.relu) {
    ProductChain inner = FindProduct(p, node->inputs[0], casts, {.bias = allowed.bias, .relu = false});
    inner.relu = inner.node != nullptr;
    return inner;
  }
  if (node->op != "Add" || !allowed.bias) return {};
  for (const ValueId term : node->inputs) {
    const ValueId bias = OtherOperand(*node, term);
    if (!p.HasOneUse(term) || !IsBias(graph, bias, v, term)) continue;
    const ProductChain inner = FindProduct(p, term, casts, {.bias = false, .relu = false});
    if (inner.node != nullptr) return {.node = inner.node, .bias = bias};
  }
  return {};
}

}  // namespace

ProductChain FindProduct(const Pattern& pattern, ValueId v, ProductChain::Casts casts) {
  return FindProduct(pattern, v, casts, {});
}

ValueId OtherOperand(const Node& sum, ValueId v) { return sum.inputs[sum.inputs[0] == v ? 1 : 0]; }

}  // namespace onnxtrain::cpu
