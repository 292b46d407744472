#include "frontend/onnx/recover/rows.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "frontend/base/strings.h"

namespace onnxtrain {
namespace {

double Exp(double x) { return std::exp(x); }
double NegatedExp(double x) { return -std::exp(x); }
double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double Tanh(double x) { return std::tanh(x); }
double Softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

double Log(double y) { return std::log(y); }
double LogOfNegated(double y) { return std::log(-y); }
double Logit(double y) { return std::log(y) - std::log1p(-y); }
double Atanh(double y) { return std::atanh(y); }
double InverseSoftplus(double y) { return y + std::log(-std::expm1(-y)); }

constexpr const char* kExpOps[] = {"Exp", "Neg"};
constexpr const char* kSigmoidOps[] = {"Sigmoid"};
constexpr const char* kTanhOps[] = {"Tanh"};
constexpr const char* kSoftplusOps[] = {"Softplus"};

struct Form {
  const char* suffix;                // appended to the name of the initializer
  const char* formula;               // the formula in messages
  std::span<const char* const> ops;  // operators of the function, the innermost first
  double (*value)(double);
  double (*argument)(double);  // not finite where there is none
};

// The order is that of ParameterFunction.
constexpr Form kForms[] = {
    {".log", "exp(p)", std::span(kExpOps).first(1), Exp, Log},
    {".log", "−exp(p)", kExpOps, NegatedExp, LogOfNegated},
    {".logit", "sigmoid(p)", kSigmoidOps, Sigmoid, Logit},
    {".atanh", "tanh(p)", kTanhOps, Tanh, Atanh},
    {".softplus_inverse", "softplus(p)", kSoftplusOps, Softplus, InverseSoftplus},
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

// Returns true if a name of the nodes to add is taken, or if an output must stay an initializer.
bool Clashes(const ComputedFunction& computed, const WeightIndex& index) {
  return index.IsNameTaken(computed.weight) || index.IsNameTaken(NameBetween(computed)) ||
         index.IsOutput(computed.value);
}

}  // namespace

// Skips initializers with values that the function does not take.
absl::StatusOr<WeightRecords> MatchFunctions(WeightIndex* index) {
  WeightRecords records;
  std::set<std::string> found;
  for (const auto& [name, function] : index->naming.functions) {
    const HostTensor* stored = index->FindTensor(name);
    const Form& form = GetForm(function);
    const ComputedFunction computed{.weight = name + form.suffix, .value = name, .function = function};
    if (stored == nullptr || found.contains(name) || Clashes(computed, *index) || !HasArguments(*stored, form))
      continue;
    found.insert(name);
    records.push_back({.weight = computed.weight,
                       .why = StrCat("the exporter computed ", form.formula, " of one parameter"),
                       .form = computed});
  }
  return records;
}

void BuildFunction(const WeightRecord& record, WeightIndex* index) {
  ParsedGraph& graph = index->mutable_graph();
  const auto& computed = std::get<ComputedFunction>(record.form);
  HostTensor weight =
      LazyTensor(graph.initializers.at(computed.value)).Map(GetForm(computed.function).argument).Whole();
  graph.initializers.erase(computed.value);
  graph.initializers.emplace(computed.weight, std::move(weight));
  std::ranges::replace(graph.initializer_order, computed.value, computed.weight);
  graph.origins[computed.weight] = index->Origin(computed.value);
  graph.origins.erase(computed.value);
  std::vector<ParsedNode> nodes = MakeNodes(computed);
  index->nodes.insert(index->nodes.begin(), std::make_move_iterator(nodes.begin()),
                      std::make_move_iterator(nodes.end()));
}

absl::Status WriteFunction(const WeightRecord& record, StoredWeights* weights) {
  const auto& computed = std::get<ComputedFunction>(record.form);
  const auto argument = weights->tensors.extract(computed.weight);
  if (!argument.empty())
    weights->tensors.emplace(computed.value, argument.mapped().Map(GetForm(computed.function).value));
  return absl::OkStatus();
}

}  // namespace onnxtrain
