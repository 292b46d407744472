#include <algorithm>
#include <unordered_set>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/rows.h"
#include "frontend/onnx/recover/weight_index.h"
#include "frontend/onnx/recover/weight_tracer.h"

namespace onnxtrain {
namespace {

constexpr auto kStandardizer = WeightOrigin::Kind::kStandardizer;

class StandardizerFinder {
 public:
  explicit StandardizerFinder(const WeightIndex& index) : index_(index), graph_(index.graph()) {
    for (const ParsedValue& input : graph_.inputs) {
      if (!graph_.initializers.contains(input.name)) raw_.insert(input.name);
    }
  }

  WeightRecords Run() {
    for (const ParsedNode& node : graph_.nodes) {
      FindStandardizer(node);
      FindTransformer(node);
    }
    return std::move(records_);
  }

 private:
  // Finds means and deviations that programs hold as buffers: (x − mean) / std for an input x, one number per channel.
  void FindStandardizer(const ParsedNode& node) {
    if (node.inputs.empty() || !raw_.contains(node.inputs[0]) || node.outputs.empty()) return;
    if (IsViewOrCast(node)) raw_.insert(node.outputs[0]);
    if (!IsOp(node, {"Sub", "Div"}) || node.inputs.size() != 2) return;
    const HostTensor* stored = index_.FindTensor(node.inputs[1]);
    if (stored == nullptr || !IsVector(*stored)) return;
    raw_.insert(node.outputs[0]);
    if (index_.Kind(node.inputs[1]) == WeightOrigin::Kind::kUnknown)
      records_.push_back(index_.MakeKind(node.inputs[1], kStandardizer, "it shifts or scales an input"));
  }

  // Finds scaling and power transforms of scikit-learn: formulas without matrix products that read only inputs and the
  // numbers that skl2onnx names after the operators that read them, "Mu_Mulcst1".
  void FindTransformer(const ParsedNode& node) {
    const auto is_number = [&](const std::string& input) {
      return graph_.initializers.contains(input) &&
             input.substr(0, input.find_last_not_of("0123456789") + 1).ends_with("_" + node.op_type + "cst");
    };
    const auto is_raw = [&](const std::string& input) { return raw_.contains(input) || transformed_.contains(input); };
    for (const std::string& input : node.inputs) {
      if (is_number(input)) numbers_.insert(input);
    }
    const auto is_known = [&](const std::string& input) { return is_raw(input) || numbers_.contains(input); };
    if (GetOnnxTraits(node).classifier || node.outputs.empty() || !std::ranges::all_of(node.inputs, is_known) ||
        std::ranges::none_of(node.inputs, is_raw))
      return;
    transformed_.insert(node.outputs[0]);
    for (const std::string& input : node.inputs) {
      if (numbers_.contains(input))
        records_.push_back(index_.MakeKind(input, kStandardizer, "a number of a transform of inputs"));
    }
  }

  const WeightIndex& index_;
  const ParsedGraph& graph_;
  WeightRecords records_;
  std::unordered_set<std::string> raw_;          // inputs of the model, viewed, cast or standardized
  std::unordered_set<std::string> numbers_;      // of skl2onnx
  std::unordered_set<std::string> transformed_;  // values computed from those and inputs of the model alone
};

}  // namespace

absl::StatusOr<WeightRecords> MatchStandardizers(WeightIndex* index) { return StandardizerFinder(*index).Run(); }

}  // namespace onnxtrain
