#include "frontend/onnx/running_statistics.h"

#include <algorithm>
#include <cmath>

#include "frontend/onnx/tensor_compare.h"
#include "frontend/onnx/weight_tracer.h"

namespace onnxtrain {
namespace {

constexpr double kMostEpsilon = 0.1;

class StatisticsFinder {
 public:
  explicit StatisticsFinder(ParsedGraph* graph) : graph_(*graph) {
    for (const auto& [name, tensor] : graph->initializers) fixed_.insert(name);
    for (const ParsedNode& node : graph->nodes) {
      for (const std::string& output : node.outputs) producers_[output] = &node;
      for (const std::string& input : node.inputs) readers_[input].push_back(&node);
      if (std::ranges::all_of(node.inputs, [&](const auto& i) { return fixed_.contains(i); }))
        fixed_.insert(node.outputs.begin(), node.outputs.end());
    }
  }

  void Run() {
    for (const ParsedNode& node : graph_.nodes) {
      if (!FindVariance(node)) FindScale(node);
    }
    for (const ParsedNode& node : graph_.nodes) FindMean(node);
  }

 private:
  static bool KeepsNumbers(const ParsedNode& node) { return IsOp(node, {"Identity"}) || IsViewOrCast(node); }

  // The stored vector that is `value` behind views, casts and, if `negated` is not null, signs; null if there is none.
  const std::string* FindVector(const std::string& value, bool* negated = nullptr) const {
    const auto producer = producers_.find(value);
    if (producer == producers_.end()) {
      const auto stored = graph_.initializers.find(value);
      const bool vector = stored != graph_.initializers.end() && stored->second.size() > 1 && IsVector(stored->second);
      return vector ? &stored->first : nullptr;
    }
    const ParsedNode& node = *producer->second;
    const bool sign = negated != nullptr && IsOp(node, {"Neg"});
    if (node.inputs.empty() || !(sign || KeepsNumbers(node))) return nullptr;
    if (sign) *negated = !*negated;
    return FindVector(node.inputs[0], negated);
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

  const std::string* FindShiftedVector(const std::string& value) const {
    const auto producer = producers_.find(value);
    if (producer == producers_.end() || !IsOp(*producer->second, {"Add"}) || producer->second->inputs.size() != 2)
      return nullptr;
    for (const size_t i : {0, 1}) {
      const auto epsilon = FindNumber(producer->second->inputs[1 - i]);
      if (epsilon && *epsilon > 0 && *epsilon < kMostEpsilon) return FindVector(producer->second->inputs[i]);
    }
    return nullptr;
  }

  bool FindVariance(const ParsedNode& node) {
    if (!IsRoot(node) || node.outputs.empty()) return false;
    const std::string* variance = FindShiftedVector(node.inputs[0]);
    if (variance == nullptr) return false;
    Mark(*variance);
    scales_.insert(node.outputs[0]);
    return true;
  }

  // Products and quotients of the root with nothing but stored numbers.
  void FindScale(const ParsedNode& node) {
    const bool inverts = IsOp(node, {"Reciprocal"});
    const bool scales = IsOp(node, {"Mul", "Div"});
    if ((inverts || scales || KeepsNumbers(node)) && !node.outputs.empty() && HasScale(node) &&
        fixed_.contains(node.outputs[0]))
      scales_.insert(node.outputs[0]);
  }

  bool HasScale(const ParsedNode& node) const {
    return std::ranges::any_of(node.inputs, [&](const auto& i) { return scales_.contains(i); });
  }

  void FindMean(const ParsedNode& node) {
    if (node.inputs.size() != 2 || node.outputs.empty()) return;
    for (const size_t i : {0, 1}) {
      bool negated = false;
      const std::string* vector = FindVector(node.inputs[i], &negated);
      if (vector != nullptr && (IsCentered(node, i, negated) || IsScaledMean(node, i, negated))) Mark(*vector);
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
  std::unordered_set<std::string> fixed_;   // stored numbers, and what is computed from nothing else
  std::unordered_set<std::string> scales_;  // made of the roots of variances
};

}  // namespace

void FindRunningStatistics(ParsedGraph* graph) { StatisticsFinder(graph).Run(); }

}  // namespace onnxtrain
