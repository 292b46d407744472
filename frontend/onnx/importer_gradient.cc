// ai.onnx.preview.training.Gradient: the gradient of a named value of the graph around the node.
#include "frontend/base/status.h"
#include "frontend/onnx/importer.h"
#include "frontend/passes/differentiate.h"

namespace onnxtrain {
namespace {

// Repeats what leads from the keys of `given` to `target` for other values in their places; returns the new target.
ValueId Repeat(Graph* graph, std::map<ValueId, ValueId> given, ValueId target) {
  const size_t count = graph->nodes().size();
  for (size_t n = 0; n < count; ++n) {
    const Node node = graph->nodes()[n];  // a copy: appending moves the nodes
    std::vector<ValueId> inputs;
    bool differs = false;
    for (ValueId v : node.inputs) {
      auto it = v == kNoValue ? given.end() : given.find(v);
      inputs.push_back(it == given.end() ? v : it->second);
      differs |= it != given.end();
    }
    if (!differs) continue;
    std::vector<Type> types;
    for (ValueId v : node.outputs) types.push_back(graph->type(v));
    const std::vector<ValueId> outputs = graph->AddNode(node.op, std::move(inputs), node.attrs, std::move(types), node.source).outputs;
    for (size_t i = 0; i < outputs.size(); ++i) given.emplace(node.outputs[i], outputs[i]);
  }
  auto it = given.find(target);
  return it == given.end() ? target : it->second;
}

}  // namespace

// The attributes xs and zs name the independent values and the inputs give the point: most often these values themselves.
absl::Status Importer::ImportGradient(ImportScope& scope, const ParsedNode& node) {
  std::vector<std::string> names;
  size_t differentiated = 0;
  for (std::string_view list : {"xs", "zs"}) {
    if (auto it = node.strings.find(std::string(list)); it != node.strings.end()) names.insert(names.end(), it->second.begin(), it->second.end());
    if (list == "xs") differentiated = names.size();
  }
  if (differentiated == 0) return Invalid("attribute 'xs' names no value");
  if (names.size() != node.inputs.size()) return Invalid("has ", node.inputs.size(), " inputs for the ", names.size(), " values of xs and zs");
  if (node.outputs.size() > differentiated) return Invalid("has ", node.outputs.size(), " outputs for ", differentiated, " values of xs");
  Val y = Lookup(scope, node.attrs.String("y"), node).value_or(Val());
  if (!y.valid()) return Invalid("attribute 'y' names no value");
  std::map<ValueId, ValueId> other;
  std::vector<ValueId> wrt;
  for (size_t i = 0; i < names.size(); ++i) {
    const Val named = *Lookup(scope, names[i], node), given = *Lookup(scope, node.inputs[i], node);
    if (!named.valid() || !given.valid()) return Invalid("input ", i, " is missing");
    if (!(named.type() == given.type())) return Invalid("input ", i, " is ", ToString(given.type()), " in place of ", ToString(named.type()));
    if (named.id() != given.id()) other[named.id()] = given.id();
    if (i < differentiated) wrt.push_back(given.id());
  }
  const ValueId target = other.empty() ? y.id() : Repeat(&graph_, std::move(other), y.id());
  ASSIGN_OR_RETURN(const auto gradients, Differentiate(&graph_, target, wrt));
  std::vector<ImportValue> results;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    auto it = gradients.find(wrt[i]);
    results.push_back(it == gradients.end() ? ZerosLike(builder_.Wrap(wrt[i])) : builder_.Wrap(it->second));
  }
  return Bind(scope, node, results), absl::OkStatus();
}

}  // namespace onnxtrain
