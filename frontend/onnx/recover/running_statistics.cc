#include "frontend/onnx/recover/rows.h"

#include <algorithm>
#include <cmath>

#include "frontend/onnx/recover/tensor_compare.h"
#include "frontend/onnx/recover/weight_tracer.h"

namespace onnxtrain {
namespace {

constexpr double kMostEpsilon = 0.1;

class StatisticsFinder {
 public:
  explicit StatisticsFinder(ParsedGraph* graph) : graph_(*graph) {
    for (const auto& [name, tensor] : graph->initializers) fixed_.insert(name);
    for (const ParsedNode& node : graph->nodes) {
      for (const std::string& input : node.inputs) readers_[input].push_back(&node);
    }
    for (const ParsedNode& node : graph->nodes) {
      for (const std::string& output : node.outputs) producers_[output] = &node;
      if (std::ranges::all_of(node.inputs, [&](const auto& i) { return fixed_.contains(i); }))
        fixed_.insert(node.outputs.begin(), node.outputs.end());
      TraceVector(node);
    }
  }

  void Run() {
    for (const ParsedNode& node : graph_.nodes) {
      if (!FindVariance(node)) FindScale(node);
    }
    if (scales_.empty()) return;
    for (const ParsedNode& node : graph_.nodes) FindMean(node);
  }

 private:
  // A stored vector behind views, casts and signs.
  struct Vector {
    std::string weight;
    bool negated = false;
  };

  std::optional<Vector> FindVector(const std::string& value) const {
    if (const auto traced = vectors_.find(value); traced != vectors_.end()) return traced->second;
    const auto stored = graph_.initializers.find(value);
    const bool vector = stored != graph_.initializers.end() && stored->second.size() > 1 && IsVector(stored->second);
    return vector ? std::optional(Vector{value}) : std::nullopt;
  }

  // An Identity over an initializer that others read, too, is a weight of its own.
  void TraceVector(const ParsedNode& node) {
    const bool negates = IsOp(node, {"Neg"}), copies = IsOp(node, {"Identity"});
    if (node.inputs.empty() || node.outputs.empty() || !(negates || copies || IsViewOrCast(node))) return;
    std::optional<Vector> vector = FindVector(node.inputs[0]);
    if (!vector) return;
    if (copies && readers_[node.inputs[0]].size() > 1) vector = Vector{node.outputs[0]};
    vector->negated ^= negates;
    vectors_[node.outputs[0]] = *std::move(vector);
  }

  std::optional<double> FindNumber(const std::string& value) const {
    const auto stored = graph_.initializers.find(value);
    if (stored != graph_.initializers.end())
      return stored->second.size() == 1 ? std::optional(stored->second.At(0)) : std::nullopt;
    const auto producer = producers_.find(value);
    if (producer == producers_.end() || !IsOp(*producer->second, {"Constant"})) return std::nullopt;
    const Attrs& attrs = producer->second->attrs;
    if (attrs.Find<double>("value_float") != nullptr) return attrs.Float("value_float");
    const HostTensor* tensor = attrs.Find<HostTensor>("value");
    return tensor != nullptr && tensor->size() == 1 ? std::optional(tensor->At(0)) : std::nullopt;
  }

  bool IsRoot(const ParsedNode& node) const {
    if (IsOp(node, {"Sqrt"})) return !node.inputs.empty();
    if (!IsOp(node, {"Pow"}) || node.inputs.size() != 2) return false;
    const auto exponent = FindNumber(node.inputs[1]);
    return exponent && std::abs(*exponent) == 0.5;
  }

  std::optional<Vector> FindShiftedVector(const std::string& value) const {
    const auto producer = producers_.find(value);
    if (producer == producers_.end() || !IsOp(*producer->second, {"Add"}) || producer->second->inputs.size() != 2)
      return std::nullopt;
    for (const size_t i : {0, 1}) {
      const auto epsilon = FindNumber(producer->second->inputs[1 - i]);
      if (epsilon && *epsilon > 0 && *epsilon < kMostEpsilon) return FindVector(producer->second->inputs[i]);
    }
    return std::nullopt;
  }

  bool FindVariance(const ParsedNode& node) {
    if (!IsRoot(node) || node.outputs.empty()) return false;
    const std::optional<Vector> variance = FindShiftedVector(node.inputs[0]);
    if (!variance || variance->negated) return false;
    Mark(variance->weight);
    scales_.insert(node.outputs[0]);
    return true;
  }

  // Products and quotients of the root with nothing but stored numbers.
  void FindScale(const ParsedNode& node) {
    const bool inverts = IsOp(node, {"Reciprocal"});
    const bool scales = IsOp(node, {"Mul", "Div"});
    if ((inverts || scales || IsOp(node, {"Identity"}) || IsViewOrCast(node)) && !node.outputs.empty() &&
        HasScale(node) && fixed_.contains(node.outputs[0]))
      scales_.insert(node.outputs[0]);
  }

  bool HasScale(const ParsedNode& node) const {
    return std::ranges::any_of(node.inputs, [&](const auto& i) { return scales_.contains(i); });
  }

  void FindMean(const ParsedNode& node) {
    if (node.inputs.size() != 2 || node.outputs.empty()) return;
    for (const size_t i : {0, 1}) {
      const std::optional<Vector> vector = FindVector(node.inputs[i]);
      if (vector && (IsCentered(node, i, vector->negated) || IsScaledMean(node, i, vector->negated)))
        Mark(vector->weight);
    }
  }

  // (x − mean)·s
  bool IsCentered(const ParsedNode& node, size_t input, bool negated) const {
    const bool subtracts = negated ? IsOp(node, {"Add"}) : input == 1 && IsOp(node, {"Sub"});
    if (!subtracts || fixed_.contains(node.inputs[1 - input])) return false;
    return AnyReader(node, [&](const ParsedNode& r) { return IsOp(r, {"Mul", "Div"}) && HasScale(r); });
  }

  // −mean·s, or mean·s that is subtracted from stored numbers
  bool IsScaledMean(const ParsedNode& node, size_t input, bool negated) const {
    if (!IsOp(node, {"Mul", "Div"}) || !scales_.contains(node.inputs[1 - input])) return false;
    const auto takes_off = [&](const ParsedNode& r) {
      return IsOp(r, {"Sub"}) && r.inputs.size() == 2 && r.inputs[1] == node.outputs[0] && fixed_.contains(r.inputs[0]);
    };
    return negated || AnyReader(node, takes_off);
  }

  template <typename Test>
  bool AnyReader(const ParsedNode& node, Test test) const {
    const auto readers = readers_.find(node.outputs[0]);
    return readers != readers_.end() &&
           std::ranges::any_of(readers->second, [&](const ParsedNode* reader) { return test(*reader); });
  }

  void Mark(const std::string& weight) {
    WeightOrigin& origin = graph_.origins[weight];
    if (origin.kind == WeightOrigin::Kind::kUnknown) origin.kind = WeightOrigin::Kind::kBuffer;
  }

  ParsedGraph& graph_;
  std::unordered_map<std::string, const ParsedNode*> producers_;
  std::unordered_map<std::string, std::vector<const ParsedNode*>> readers_;
  std::unordered_map<std::string, Vector> vectors_;
  std::unordered_set<std::string> fixed_;   // stored numbers, and what is computed from nothing else
  std::unordered_set<std::string> scales_;  // made of the roots of variances
};

}  // namespace

void FindRunningStatistics(ParsedGraph* graph) { StatisticsFinder(graph).Run(); }

}  // namespace onnxtrain
