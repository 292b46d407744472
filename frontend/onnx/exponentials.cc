#include "frontend/onnx/exponentials.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "frontend/base/strings.h"

namespace onnxtrain {
namespace {

bool HasLogarithm(const HostTensor& tensor, double sign) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (const double x = sign * tensor.At(i); !std::isnormal(x) || x < 0) return false;
  }
  return IsFloat(tensor.dtype()) && tensor.size() > 0;
}

template <typename F>
HostTensor Map(const HostTensor& tensor, F f) {
  HostTensor mapped(tensor.type());
  for (int64_t i = 0; i < tensor.size(); ++i) mapped.Set(i, f(tensor.At(i)));
  return mapped;
}

ParsedNode MakeNode(const char* op, const std::string& input, const std::string& output) {
  ParsedNode node{.op_type = op, .inputs = {input}, .outputs = {output}};
  node.name = node.source = StrCat("exponential/", output);
  return node;
}

std::vector<ParsedNode> MakeNodes(const Exponential& exponential) {
  const std::string positive = exponential.negated ? exponential.value + ".exp" : exponential.value;
  std::vector<ParsedNode> nodes = {MakeNode("Exp", exponential.weight, positive)};
  if (exponential.negated) nodes.push_back(MakeNode("Neg", positive, exponential.value));
  return nodes;
}

// Whether the graph has the names that the nodes make, or an output that must stay an initializer.
bool Clashes(const Exponential& exponential, const ParsedGraph& graph) {
  const auto taken = [&](const std::string& name) {
    return graph.initializers.contains(name) || std::ranges::any_of(graph.nodes, [&](const ParsedNode& node) {
             return std::ranges::count(node.outputs, name) > 0;
           });
  };
  return taken(exponential.weight) || taken(exponential.value + ".exp") ||
         std::ranges::count(graph.outputs, exponential.value, &ParsedValue::name) > 0;
}

}  // namespace

void TrainLogarithms(const std::vector<std::string>& names, bool negated, ParsedGraph* graph) {
  for (const std::string& name : names) {
    const auto stored = graph->initializers.find(name);
    const double sign = negated ? -1 : 1;
    Exponential exponential{.weight = name + ".log", .value = name, .negated = negated};
    if (stored == graph->initializers.end() || Clashes(exponential, *graph) || !HasLogarithm(stored->second, sign))
      continue;
    HostTensor weight = Map(stored->second, [&](double x) { return std::log(sign * x); });
    graph->initializers.erase(stored);
    graph->initializers.emplace(exponential.weight, std::move(weight));
    std::ranges::replace(graph->initializer_order, name, exponential.weight);
    graph->origins[exponential.weight] = graph->origins[name];
    graph->origins.erase(name);
    std::vector<ParsedNode> nodes = MakeNodes(exponential);
    graph->nodes.insert(graph->nodes.begin(), std::make_move_iterator(nodes.begin()),
                        std::make_move_iterator(nodes.end()));
    graph->shared.exponentials.push_back(std::move(exponential));
  }
}

HostTensor MakeExponential(const Exponential& exponential, const HostTensor& weight) {
  const double sign = exponential.negated ? -1 : 1;
  return Map(weight, [&](double x) { return sign * std::exp(x); });
}

}  // namespace onnxtrain
