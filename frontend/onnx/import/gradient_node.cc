#include "frontend/onnx/import/gradient_node.h"

#include <map>

#include "frontend/base/status.h"
#include "frontend/passes/differentiate.h"

namespace onnxtrain {
namespace {

struct GradientSpec {
  std::vector<std::string> names;  // xs, then zs
  size_t differentiated = 0;       // how many of them are xs
};

absl::StatusOr<GradientSpec> ReadSpec(const ParsedNode& node) {
  GradientSpec spec;
  for (std::string_view list : {"xs", "zs"}) {
    if (auto it = node.strings.find(std::string(list)); it != node.strings.end())
      spec.names.insert(spec.names.end(), it->second.begin(), it->second.end());
    if (list == "xs") spec.differentiated = spec.names.size();
  }
  if (spec.differentiated == 0) return Invalid("attribute 'xs' names no value");
  if (spec.names.size() != node.inputs.size())
    return Invalid("has ", node.inputs.size(), " inputs for the ", spec.names.size(), " values of xs and zs");
  if (node.outputs.size() > spec.differentiated)
    return Invalid("has ", node.outputs.size(), " outputs for ", spec.differentiated, " values of xs");
  return spec;
}

// Appends a clone of `node` that reads the replacements of its inputs, and maps its outputs to the clone's.
void CloneWith(Graph* graph, Node node, std::map<ValueId, ValueId>* replaced) {
  bool differs = false;
  for (ValueId& v : node.inputs) {
    const auto it = v == kNoValue ? replaced->end() : replaced->find(v);
    if (it == replaced->end()) continue;
    v = it->second;
    differs = true;
  }
  if (!differs) return;
  std::vector<Type> types;
  for (ValueId v : node.outputs) types.push_back(graph->type(v));
  const ValueIds outputs =
      graph->AddNode(node.op, std::move(node.inputs), node.attrs, std::move(types), node.source).outputs;
  for (size_t i = 0; i < outputs.size(); ++i) replaced->emplace(node.outputs[i], outputs[i]);
}

// Clones the nodes that lead from the keys of `replaced` to `target`; returns the target of the clones.
ValueId CloneFor(Graph* graph, std::map<ValueId, ValueId> replaced, ValueId target) {
  const size_t count = graph->nodes().size();
  for (size_t n = 0; n < count; ++n) CloneWith(graph, graph->nodes()[n], &replaced);
  const auto it = replaced.find(target);
  return it == replaced.end() ? target : it->second;
}

}  // namespace

ImportValuesOr ImportGradientNode(const ParsedNode& node, Builder* builder, const FindTensorFn& find) {
  ASSIGN_OR_RETURN(const GradientSpec spec, ReadSpec(node));
  ASSIGN_OR_RETURN(const Val y, find(node.attrs.String("y")));
  if (!y.valid()) return Invalid("attribute 'y' names no value");
  std::map<ValueId, ValueId> replaced;
  std::vector<ValueId> wrt;
  for (size_t i = 0; i < spec.names.size(); ++i) {
    ASSIGN_OR_RETURN(const Val named, find(spec.names[i]));
    ASSIGN_OR_RETURN(const Val given, find(node.inputs[i]));
    if (!named.valid() || !given.valid()) return Invalid("input ", i, " is missing");
    if (!(named.type() == given.type()))
      return Invalid("input ", i, " is ", ToString(given.type()), " in place of ", ToString(named.type()));
    if (named.id() != given.id()) replaced[named.id()] = given.id();
    if (i < spec.differentiated) wrt.push_back(given.id());
  }
  Graph& graph = builder->graph();
  const ValueId target = replaced.empty() ? y.id() : CloneFor(&graph, std::move(replaced), y.id());
  ASSIGN_OR_RETURN(const auto gradients, Differentiate(&graph, target, wrt));
  ImportValues results;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const auto it = gradients.find(wrt[i]);
    results.emplace_back(it == gradients.end() ? ZerosLike(builder->Wrap(wrt[i])) : builder->Wrap(it->second));
  }
  return results;
}

}  // namespace onnxtrain
