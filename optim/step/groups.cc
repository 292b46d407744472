#include "optim/step/groups.h"

#include <algorithm>
#include <limits>
#include <map>

#include "frontend/base/status.h"
#include "frontend/ops/cost.h"
#include "frontend/ops/row.h"
#include "optim/config/weight_globs.h"

namespace onnxtrain {
namespace {

std::string GroupName(const UpdateRule& rule) {
  return StrCat(rule.weight_decay != 0 ? "decay" : "plain", rule.lr_factor != 1 ? StrCat("×", rule.lr_factor) : "");
}

}  // namespace

absl::StatusOr<std::vector<WeightGroup>> GroupWeights(const OptimizerSpec& spec,
                                                      const std::vector<WeightDecision>& weights) {
  const bool by_glob = spec.weight_decay != 0 && spec.no_decay != "auto" && spec.no_decay != "none";
  WeightGlobs no_decay("no_decay", by_glob ? std::vector<std::string>{spec.no_decay} : std::vector<std::string>{});
  const auto decays = [&](const WeightDecision& w) {
    if (spec.weight_decay == 0 || spec.no_decay == "none") return spec.weight_decay != 0;
    if (spec.no_decay == "auto") return w.type.rank() > 1 && !w.name.ends_with("bias") && !w.alias.ends_with("bias");
    return no_decay.Match(w) == nullptr;
  };
  // Decaying weights first, then by rate.
  std::map<UpdateRule, WeightGroup, std::greater<>> groups;
  size_t with_factor = 0;
  for (const WeightDecision& w : weights) {
    const auto factor = spec.lr_factors.find(w.name);
    with_factor += factor != spec.lr_factors.end();
    const bool decay = decays(w);
    if (!w.trained) continue;
    const UpdateRule rule{decay ? spec.weight_decay : 0, factor != spec.lr_factors.end() ? factor->second : 1};
    WeightGroup& group = groups[rule];
    group.name = GroupName(rule);
    group.rule = rule;
    group.members.push_back(&w);
  }
  RETURN_IF_ERROR(no_decay.CheckAllMatched());
  if (with_factor != spec.lr_factors.size())
    return Invalid("a learning rate is given for a weight that the model does not have");
  std::vector<WeightGroup> out;
  for (auto& [rule, group] : groups) out.push_back(std::move(group));
  return out;
}

namespace {

bool EndsInNumber(const std::string& module) {
  const size_t at = module.find_last_of("./");
  const std::string last = module.substr(at == std::string::npos ? 0 : at + 1);
  return !last.empty() && last.find_first_not_of("0123456789") == std::string::npos;
}

// Returns the layer of a module path; "" if the weight is in no module.
std::string ModuleLayer(const std::vector<std::string>& modules) {
  const auto numbered = std::find_if(modules.begin(), modules.end(), EndsInNumber);
  if (numbered != modules.end()) return *numbered;
  return modules.empty() ? "" : modules[std::min<size_t>(1, modules.size() - 1)];
}

std::string LayerName(const WeightDecision& w) {
  std::vector<std::string> modules = ListModules(w.alias.empty() ? w.name : w.alias);
  const std::string node = w.consumer.substr(w.consumer.find(' ') + 1);
  if (modules.empty()) {
    modules = ListModules(node);
    std::erase_if(modules,
                  [](const std::string& m) { return m.starts_with("/"); });  // the dotted form is in the list, too
  }
  const std::string layer = ModuleLayer(modules);
  return !layer.empty() ? layer : node.empty() ? w.name : node;
}

}  // namespace

std::map<std::string, int32_t> FindFirstReaders(const Graph& graph) {
  const auto readers = ComputeUsers(graph);
  std::map<std::string, int32_t> first;
  for (const GraphInput& input : graph.inputs()) {
    const auto& nodes = readers[input.value];
    first[input.name] =
        nodes.empty() ? std::numeric_limits<int32_t>::max() : *std::min_element(nodes.begin(), nodes.end());
  }
  return first;
}

namespace {

constexpr int kMaxSteps = 16;  // from an output to its product, or from a product to its weight

// Returns the weight of rank ≥ 2 that the value is a form of; "" if it is none.
std::string FindMatrix(const Graph& graph, ValueId v) {
  for (int step = 0; step < kMaxSteps && v != kNoValue; ++step) {
    if (graph.IsInput(v)) {
      const GraphInput& input = graph.inputs()[graph.value(v).index];
      return input.kind == InputKind::kParameter && graph.type(v).rank() >= 2 ? input.name : "";
    }
    const Node& node = *graph.producer(v);
    if (node.op != "Transpose" && node.op != "Cast" && !FindOp(node.op)->view) return "";
    v = node.inputs[0];
  }
  return "";
}

// Returns the matrix of the last product on the way to an output; "" if there is none.
std::string FindOutputMatrix(const Graph& graph, ValueId v) {
  for (int step = 0; step < kMaxSteps; ++step) {
    const Node* node = graph.producer(v);
    if (node == nullptr) return "";
    v = kNoValue;
    const bool product = IsProduct(*node);
    for (const ValueId operand : node->inputs) {
      if (operand == kNoValue) continue;
      if (std::string name = product ? FindMatrix(graph, operand) : ""; !name.empty()) return name;
      const Node* producer = graph.producer(operand);
      if (v == kNoValue && producer != nullptr && !IsConstant(*producer)) v = operand;
    }
    if (product || v == kNoValue) return "";
  }
  return "";
}

}  // namespace

std::set<std::string> FindTables(const ImportedModel& model) {
  std::set<std::string> tables;
  for (const Node& node : model.graph.nodes()) {
    if (node.op == "Gather") tables.insert(FindMatrix(model.graph, node.inputs[0]));
  }
  for (const std::string& output : model.outputs)
    tables.insert(FindOutputMatrix(model.graph, model.graph.FindOutput(output)->value));
  tables.erase("");
  return tables;
}

std::vector<Layer> ListLayers(const PreparedModel& model) {
  const auto first = FindFirstReaders(model.model.graph);
  std::vector<const WeightDecision*> order;
  for (const WeightDecision& w : model.weights) order.push_back(&w);
  const auto position = [&](const WeightDecision* w) {
    const auto it = first.find(w->name);
    return it == first.end() ? std::numeric_limits<int32_t>::max() : it->second;
  };
  std::stable_sort(order.begin(), order.end(), [&](const auto* a, const auto* b) { return position(a) < position(b); });
  std::map<std::string, bool> has_matrix;
  for (const WeightDecision* w : order) has_matrix[LayerName(*w)] |= w->type.rank() > 1;
  std::vector<Layer> layers;
  std::map<std::string, size_t> index;
  for (const WeightDecision* w : order) {
    const std::string name = LayerName(*w);
    auto known = index.find(name);
    if (known == index.end()) {
      if (layers.empty() || has_matrix[name]) layers.push_back({name, {}});
      known = index.emplace(name, layers.size() - 1).first;
    }
    layers[known->second].weights.push_back(w->name);
  }
  return layers;
}

}  // namespace onnxtrain
