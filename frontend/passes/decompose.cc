#include "frontend/passes/decompose.h"

#include <map>
#include <string>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/passes/differentiate.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain {

absl::StatusOr<Graph> DecomposeNodes(const Graph& graph,
                                     const std::function<bool(const Graph&, const Node&)>& should_decompose) {
  constexpr int kMaxRounds = 50;  // decompositions nest a few deep; more rounds mean that a row decomposes into itself
  Graph current = graph;
  bool changed = true;
  for (int round = 0; changed; ++round) {
    CHECK_LT(round, kMaxRounds) << "a decomposition without end";
    changed = false;
    auto rule = [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
      const OpRow* row = FindOp(node.op);
      if (row == nullptr || row->decompose == nullptr || !should_decompose(r.from(), node)) return std::nullopt;
      DecomposeContext c{r.b(), node.attrs, {}, {}};
      for (ValueId v : node.inputs) c.inputs.push_back(r.Map(v));
      for (ValueId v : node.outputs) c.output_types.push_back(r.from().type(v));
      return row->decompose(c);
    };
    ASSIGN_OR_RETURN(current, Rewrite(current, rule, &changed));
  }
  return current;
}

namespace {

// Inlines the live nodes of `part` into the graph of b and replaces its inputs by `inputs`, in order. Returns the
// values of its outputs by name.
std::map<std::string, Val> Inline(Builder& b, const Graph& part, const std::vector<Val>& inputs) {
  std::vector<ValueId> map(part.values().size(), kNoValue);
  for (size_t i = 0; i < inputs.size(); ++i) map[part.inputs()[i].value] = inputs[i].id();
  for (const Node& node : part.nodes()) {
    ValueIds ids;
    std::vector<Type> types;
    for (ValueId v : node.inputs) ids.push_back(v == kNoValue ? kNoValue : map[v]);
    for (ValueId v : node.outputs) types.push_back(part.type(v));
    const Node& copy = b.graph().AddNode(node.op, std::move(ids), node.attrs, std::move(types), b.source());
    for (size_t i = 0; i < node.outputs.size(); ++i) map[node.outputs[i]] = copy.outputs[i];
  }
  std::map<std::string, Val> results;
  for (const GraphOutput& output : part.outputs()) results[output.name] = b.Wrap(map[output.value]);
  return results;
}

}  // namespace

// Differentiates the decomposition in a separate graph, in which its inputs are independent. In the whole graph, one
// input may be computed from another, and following that path would count its gradient twice.
std::vector<Val> GradientOfDecomposition(const OpRow& row, const GradContext& c) {
  std::vector<Val> grads(c.inputs.size());
  Graph part;
  Builder b(&part);
  std::vector<Val> outer;  // values of the inputs of `part` in the whole graph
  DecomposeContext d{b, c.node.attrs, {}, {}};
  auto stand_in = [&](Val v, std::string name) {
    if (!v.valid()) return Val();
    outer.push_back(v);
    return b.Input(InputKind::kFeed, std::move(name), v.type());
  };
  for (size_t i = 0; i < c.inputs.size(); ++i) d.inputs.push_back(stand_in(c.inputs[i], StrCat("x", i)));
  for (Val y : c.outputs) d.output_types.push_back(y.type());
  const std::vector<Val> outputs = row.decompose(d);
  std::vector<ValueId> wrt;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (c.need(i)) wrt.push_back(d.inputs[i].id());
  }
  std::vector<Seed> seeds;
  for (size_t o = 0; o < outputs.size() && b.status().ok(); ++o) {
    if (c.grads[o].valid()) seeds.push_back({outputs[o].id(), stand_in(c.grads[o], StrCat("dy", o)).id()});
  }
  if (c.b.Fail(b.status()); !b.status().ok()) return grads;
  auto found = Differentiate(&part, seeds, wrt);
  if (c.b.Fail(found.status()); !found.ok()) return grads;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    auto it = c.need(i) ? found->find(d.inputs[i].id()) : found->end();
    if (it != found->end()) part.AddOutput(StrCat("dx", i), it->second);
  }
  const auto results = Inline(c.b, part, outer);
  for (size_t i = 0; i < grads.size(); ++i) {
    if (auto it = results.find(StrCat("dx", i)); it != results.end()) grads[i] = it->second;
  }
  return grads;
}

}  // namespace onnxtrain
