#include "frontend/onnx/recover/rows.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "frontend/base/strings.h"
#include "frontend/onnx/recover/weight_names.h"

namespace onnxtrain {
namespace {

double Exp(double x) { return std::exp(x); }
double NegatedExp(double x) { return -std::exp(x); }
double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double Tanh(double x) { return std::tanh(x); }

double Log(double y) { return std::log(y); }
double LogOfNegated(double y) { return std::log(-y); }
double Logit(double y) { return std::log(y) - std::log1p(-y); }
double Atanh(double y) { return std::atanh(y); }

constexpr const char* kExpOps[] = {"Exp", "Neg"};
constexpr const char* kSigmoidOps[] = {"Sigmoid"};
constexpr const char* kTanhOps[] = {"Tanh"};

struct Form {
  const char* suffix;                // of the name of the weight
  std::span<const char* const> ops;  // of the function, the innermost first
  double (*value)(double);
  double (*argument)(double);  // not finite where there is none
};

// By ParameterFunction.
constexpr Form kForms[] = {
    {".log", std::span(kExpOps).first(1), Exp, Log},
    {".log", kExpOps, NegatedExp, LogOfNegated},
    {".logit", kSigmoidOps, Sigmoid, Logit},
    {".atanh", kTanhOps, Tanh, Atanh},
};

const Form& GetForm(ParameterFunction function) { return kForms[static_cast<size_t>(function)]; }

bool HasArguments(const HostTensor& tensor, const Form& form) {
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (!std::isfinite(form.argument(tensor.At(i)))) return false;
  }
  return IsFloat(tensor.dtype()) && tensor.size() > 0;
}

std::string NameBetween(const ComputedFunction& computed) { return computed.value + ".inner"; }

std::vector<ParsedNode> MakeNodes(const ComputedFunction& computed) {
  const auto ops = GetForm(computed.function).ops;
  std::vector<ParsedNode> nodes;
  for (size_t i = 0; i < ops.size(); ++i) {
    const std::string input = i == 0 ? computed.weight : NameBetween(computed);
    const std::string output = i + 1 == ops.size() ? computed.value : NameBetween(computed);
    ParsedNode node{.op_type = ops[i], .inputs = {input}, .outputs = {output}};
    node.name = node.source = StrCat("computed/", output);
    nodes.push_back(std::move(node));
  }
  return nodes;
}

// Whether the graph has the names that the nodes make, or an output that must stay an initializer.
bool Clashes(const ComputedFunction& computed, const ParsedGraph& graph) {
  return IsNameTaken(graph, computed.weight) || IsNameTaken(graph, NameBetween(computed)) ||
         std::ranges::count(graph.outputs, computed.value, &ParsedValue::name) > 0;
}

}  // namespace

void TrainArgument(const std::string& name, ParameterFunction function, ParsedGraph* graph) {
  const auto stored = graph->initializers.find(name);
  const Form& form = GetForm(function);
  ComputedFunction computed{.weight = name + form.suffix, .value = name, .function = function};
  if (stored == graph->initializers.end() || Clashes(computed, *graph) || !HasArguments(stored->second, form)) return;
  HostTensor weight = LazyTensor(stored->second).Map(form.argument).Whole();
  graph->initializers.erase(stored);
  graph->initializers.emplace(computed.weight, std::move(weight));
  std::ranges::replace(graph->initializer_order, name, computed.weight);
  graph->origins[computed.weight] = graph->origins[name];
  graph->origins.erase(name);
  std::vector<ParsedNode> nodes = MakeNodes(computed);
  graph->nodes.insert(graph->nodes.begin(), std::make_move_iterator(nodes.begin()),
                      std::make_move_iterator(nodes.end()));
  graph->shared.functions.push_back(std::move(computed));
}

LazyTensor MakeValue(const ComputedFunction& computed, const LazyTensor& weight) {
  return weight.Map(GetForm(computed.function).value);
}

}  // namespace onnxtrain
