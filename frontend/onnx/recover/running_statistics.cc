#include "frontend/onnx/recover/rows.h"

#include <algorithm>
#include <cmath>

#include "frontend/onnx/recover/module_path.h"
#include "frontend/onnx/recover/reader_roles.h"
#include "frontend/onnx/recover/weight_index.h"
#include "frontend/onnx/recover/weight_tracer.h"

namespace onnxtrain {
namespace {

constexpr double kMostEpsilon = 0.1;

class StatisticsFinder {
 public:
  explicit StatisticsFinder(const WeightIndex& index) : index_(index), graph_(index.graph()) {
    for (const auto& [name, tensor] : graph_.initializers) fixed_.insert(name);
    for (const ParsedNode& node : graph_.nodes) {
      if (std::ranges::all_of(node.inputs, [&](const auto& i) { return fixed_.contains(i); }))
        fixed_.insert(node.outputs.begin(), node.outputs.end());
      TraceVector(node);
    }
  }

  WeightRecords Run() {
    for (const ParsedNode& node : graph_.nodes) {
      if (!FindVariance(node)) FindScale(node);
    }
    for (const ParsedNode& node : graph_.nodes) {
      if (!scales_.empty()) FindMean(node);
    }
    return std::move(records_);
  }

 private:
  // A stored vector before views, casts and signs.
  struct Vector {
    std::string weight;
    bool negated = false;
  };

  std::optional<Vector> FindVector(const std::string& value) const {
    if (const auto traced = vectors_.find(value); traced != vectors_.end()) return traced->second;
    const HostTensor* stored = index_.FindTensor(value);
    const bool vector = stored != nullptr && stored->size() > 1 && IsVector(*stored);
    return vector ? std::optional(Vector{value}) : std::nullopt;
  }

  // Follows views, casts and signs. An Identity whose initializer has other readers is a separate weight.
  void TraceVector(const ParsedNode& node) {
    const bool negates = IsOp(node, {"Neg"}), copies = IsIdentity(node);
    if (node.inputs.empty() || node.outputs.empty() || !(negates || copies || IsViewOrCast(node))) return;
    std::optional<Vector> vector = FindVector(node.inputs[0]);
    if (!vector) return;
    if (copies && index_.Readers(node.inputs[0]).size() > 1) vector = Vector{node.outputs[0]};
    vector->negated ^= negates;
    vectors_[node.outputs[0]] = *std::move(vector);
  }

  std::optional<double> FindNumber(const std::string& value) const {
    if (const HostTensor* stored = index_.FindTensor(value))
      return stored->size() == 1 ? std::optional(stored->At(0)) : std::nullopt;
    const ParsedNode* producer = index_.Producer(value);
    if (producer == nullptr || !IsConstant(*producer)) return std::nullopt;
    const Attrs& attrs = producer->attrs;
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
    const ParsedNode* producer = index_.Producer(value);
    if (producer == nullptr || !IsOp(*producer, {"Add"}) || producer->inputs.size() != 2) return std::nullopt;
    for (const size_t i : {0, 1}) {
      const auto epsilon = FindNumber(producer->inputs[1 - i]);
      if (epsilon && *epsilon > 0 && *epsilon < kMostEpsilon) return FindVector(producer->inputs[i]);
    }
    return std::nullopt;
  }

  bool FindVariance(const ParsedNode& node) {
    if (!IsRoot(node) || node.outputs.empty()) return false;
    const std::optional<Vector> variance = FindShiftedVector(node.inputs[0]);
    if (!variance || variance->negated) return false;
    Mark(variance->weight, "the variance in √(variance + ε)");
    scales_.insert(node.outputs[0]);
    return true;
  }

  // Follows products and quotients of the root with stored numbers only.
  void FindScale(const ParsedNode& node) {
    const bool inverts = IsOp(node, {"Reciprocal"});
    const bool scales = IsOp(node, {"Mul", "Div"});
    if ((inverts || scales || IsIdentity(node) || IsViewOrCast(node)) && !node.outputs.empty() && HasScale(node) &&
        fixed_.contains(node.outputs[0]))
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
        Mark(vector->weight, "the mean in (x − mean)·s, where s has √(variance + ε)");
    }
  }

  // Matches (x − mean)·s.
  bool IsCentered(const ParsedNode& node, size_t input, bool negated) const {
    const bool subtracts = negated ? IsOp(node, {"Add"}) : input == 1 && IsOp(node, {"Sub"});
    if (!subtracts || fixed_.contains(node.inputs[1 - input])) return false;
    return AnyReader(node, [&](const ParsedNode& r) { return IsOp(r, {"Mul", "Div"}) && HasScale(r); });
  }

  // Matches −mean·s, and mean·s that is subtracted from stored numbers.
  bool IsScaledMean(const ParsedNode& node, size_t input, bool negated) const {
    if (!IsOp(node, {"Mul", "Div"}) || !scales_.contains(node.inputs[1 - input])) return false;
    const auto takes_off = [&](const ParsedNode& r) {
      return IsOp(r, {"Sub"}) && r.inputs.size() == 2 && r.inputs[1] == node.outputs[0] && fixed_.contains(r.inputs[0]);
    };
    return negated || AnyReader(node, takes_off);
  }

  template <typename Test>
  bool AnyReader(const ParsedNode& node, Test test) const {
    return std::ranges::any_of(index_.Readers(node.outputs[0]),
                               [&](const WeightReader& reader) { return test(*reader.node); });
  }

  void Mark(const std::string& weight, const char* why) {
    if (index_.Kind(weight) == WeightOrigin::Kind::kUnknown)
      records_.push_back(index_.MakeKind(weight, WeightOrigin::Kind::kBuffer, why));
  }

  const WeightIndex& index_;
  const ParsedGraph& graph_;
  WeightRecords records_;
  std::unordered_map<std::string, Vector> vectors_;
  std::unordered_set<std::string> fixed_;   // stored numbers, and values computed from them alone
  std::unordered_set<std::string> scales_;  // values computed from the roots of variances
};

// Returns true if it is a vector that the exporter computed, perhaps read through an Identity.
bool IsComputedVector(const WeightIndex& index, const std::string& name) {
  const ParsedNode* identity = index.Producer(name);
  const bool copied = identity != nullptr && IsIdentity(*identity);
  const HostTensor* stored = index.FindTensor(copied ? identity->inputs[0] : name);
  return IsComputedName(name) && stored != nullptr && IsVector(*stored);
}

// Returns true for batch normalization for inference in Keras's form, (x − mean) · scale + shift. A trained mean would
// be a second shift.
bool IsMeanOfNorm(const WeightIndex& index, const ParsedNode& node) {
  const auto is_vector = [&](const std::string& input) { return IsComputedVector(index, input); };
  if (!IsOp(node, {"Sub"}) || node.inputs.size() != 2 || !is_vector(node.inputs[1])) return false;
  const ParsedNode* scale = FindOnlyReader(index, node, "Mul");
  const ParsedNode* shift = scale == nullptr ? nullptr : FindOnlyReader(index, *scale, "Add");
  return shift != nullptr && std::ranges::any_of(scale->inputs, is_vector) &&
         std::ranges::any_of(shift->inputs, is_vector);
}

}  // namespace

absl::StatusOr<WeightRecords> MatchMeans(WeightIndex* index) {
  WeightRecords records;
  for (const ParsedNode& node : index->graph().nodes) {
    if (IsMeanOfNorm(*index, node))
      records.push_back(
          index->MakeKind(node.inputs[1], WeightOrigin::Kind::kBuffer, "the mean in (x − mean) · scale + shift"));
  }
  return records;
}

absl::StatusOr<WeightRecords> MatchRunningStatistics(WeightIndex* index) { return StatisticsFinder(*index).Run(); }

}  // namespace onnxtrain
