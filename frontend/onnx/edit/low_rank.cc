#include "frontend/onnx/edit/low_rank.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/onnx/edit/output_layer.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/recover/module_path.h"
#include "frontend/onnx/recover/weight_tracer.h"

namespace onnxtrain {
namespace {

using Kind = WeightOrigin::Kind;

class TargetFinder {
 public:
  explicit TargetFinder(const OnnxModel& model) : model_(model.parsed()), tracer_(model_) {
    for (const ParsedNode& node : model_.graph.nodes) {
      for (const auto* names : {&node.inputs, &node.captured}) {
        for (const std::string& name : *names) readers_[name].push_back(&node);
      }
    }
    for (const std::string& name : model.outputs()) outputs_.insert(name);
    if (model.outputs().empty()) return;
    const auto path = FindClassifier(tracer_, model.outputs()[0]);
    if (path.ok() && !path->classifier->outputs.empty()) output_layer_ = path->classifier->outputs[0];
  }

  std::vector<LowRankTarget> Run() {
    for (const ParsedNode& node : model_.graph.nodes) AddProduct(node);
    std::erase_if(targets_, [&](const LowRankTarget& target) {
      return mixed_.contains(target.weight) || !OnlyProductsRead(target.weight);
    });
    NumberEqualModules();
    return std::move(targets_);
  }

 private:
  // Returns true for x·W and x·Wᵀ, and convolutions of all channels, with an unscaled bias or none.
  static bool IsProduct(const ParsedNode& node) {
    if (IsOp(node, {"Conv"})) return node.attrs.Int("group", 1) == 1;
    const bool scaled =
        node.attrs.Float("alpha", 1) != 1 || (node.inputs.size() > 2 && node.attrs.Float("beta", 1) != 1);
    return IsOp(node, {"MatMul"}) || (IsOp(node, {"Gemm"}) && node.attrs.Int("transA") == 0 && !scaled);
  }

  // Adds the node to the target of its weight if it is a product with one.
  void AddProduct(const ParsedNode& node) {
    if (!IsProduct(node)) return;
    const bool conv = IsOp(node, {"Conv"});
    const auto traced = tracer_.Trace(node.inputs[1]);
    if (!traced.ok() || !IsTrained(traced->tensor) || conv != (traced->shape.size() > 2)) return;
    bool transposed = conv || node.attrs.Int("transB") != 0;
    for (const ParsedNode* moved : traced->through) {
      if (!IsMove(*moved) || (conv && !IsIdentity(*moved))) return;
      transposed ^= IsOp(*moved, {"Transpose"});
    }
    products_.insert(&node);
    const auto [at, first] = by_weight_.emplace(traced->tensor, targets_.size());
    if (first) {
      const Shape& stored = traced->stored;
      targets_.push_back({.module = Module(node, traced->tensor),
                          .weight = traced->tensor,
                          .dtype = model_.graph.initializers.at(traced->tensor).dtype(),
                          .inputs = stored[transposed ? 1 : 0],
                          .outputs = stored[transposed ? 0 : 1],
                          .kernel = Shape(stored.begin() + 2, stored.end()),
                          .outputs_first = transposed});
    }
    LowRankTarget& target = targets_[at->second];
    target.nodes.push_back(node.outputs[0]);
    target.output_layer |= node.outputs[0] == output_layer_;
    if (target.outputs_first != transposed) mixed_.insert(target.weight);
  }

  static bool IsMove(const ParsedNode& node) { return IsOp(node, {"Transpose"}) || IsIdentity(node); }

  // Returns true if all readers of the value, through transposes, are products that AddProduct found.
  bool OnlyProductsRead(const std::string& name) const {
    if (outputs_.contains(name)) return false;
    const auto readers = readers_.find(name);
    return readers == readers_.end() || std::ranges::all_of(readers->second, [&](const ParsedNode* node) {
             if (IsOp(*node, {"Shape", "Size"})) return true;
             if (IsMove(*node)) return OnlyProductsRead(node->outputs[0]);
             return products_.contains(node) && node->inputs[0] != name;
           });
  }

  bool IsTrained(const std::string& weight) const {
    const auto tensor = model_.graph.initializers.find(weight);
    if (tensor == model_.graph.initializers.end() || !IsFloat(tensor->second.dtype())) return false;
    const auto origin = model_.graph.origins.find(weight);
    return origin == model_.graph.origins.end() || origin->second.kind == Kind::kUnknown ||
           origin->second.kind == Kind::kParameter;
  }

  std::string Module(const ParsedNode& node, const std::string& weight) const {
    const auto origin = model_.graph.origins.find(weight);
    std::string name = origin == model_.graph.origins.end() ? "" : origin->second.module_name;
    if (name.empty() && !IsGeneratedName(weight)) name = weight;
    if (LastPart(name) == "weight" && !ParentOf(name).empty()) return std::string(ParentOf(name));
    const std::string scopes = DottedModule(node.name);
    return !scopes.empty() ? scopes : !name.empty() ? name : node.source;
  }

  void NumberEqualModules() {
    std::unordered_map<std::string, int> seen;
    for (LowRankTarget& target : targets_) {
      const int count = seen[target.module]++;
      if (count > 0) target.module = StrCat(target.module, ".", count);
    }
  }

  const OnnxModel::Parsed& model_;
  WeightTracer tracer_;
  std::string output_layer_;  // by its first output
  std::unordered_map<std::string, std::vector<const ParsedNode*>> readers_;
  std::unordered_set<std::string> outputs_;  // of the model
  std::unordered_set<const ParsedNode*> products_;
  std::vector<LowRankTarget> targets_;
  std::unordered_map<std::string, size_t> by_weight_;  // index into targets_
  std::unordered_set<std::string> mixed_;              // weights that are read in both orientations
};

}  // namespace

std::vector<LowRankTarget> ListLowRankTargets(const OnnxModel& model) { return TargetFinder(model).Run(); }

std::vector<ModuleWeight> ListModuleWeights(const OnnxModel& model, const std::vector<LowRankTarget>& targets) {
  const ParsedGraph& graph = model.parsed().graph;
  std::unordered_map<std::string, const LowRankTarget*> by_weight;
  for (const LowRankTarget& target : targets) by_weight[target.weight] = &target;
  std::vector<ModuleWeight> weights;
  const auto add = [&](const std::string& name, const std::string& initializer) {
    const auto tensor = graph.initializers.find(initializer);
    if (tensor == graph.initializers.end() || !IsFloat(tensor->second.dtype())) return;
    const auto target = by_weight.find(name);
    const auto origin = graph.origins.find(name);
    const bool named = origin != graph.origins.end() && !origin->second.module_name.empty();
    weights.push_back({.name = target != by_weight.end() ? target->second->module + ".weight"
                               : named                   ? origin->second.module_name
                                                         : name,
                       .weight = name,
                       .value = tensor->second,
                       .transposed = target != by_weight.end() && !target->second->outputs_first});
  };
  for (const std::string& name : graph.initializer_order) add(name, name);
  for (const ParsedNode& node : graph.nodes) {
    if (IsIdentity(node)) add(node.outputs[0], node.inputs[0]);
  }
  return weights;
}

}  // namespace onnxtrain
