#include "frontend/onnx/import/supported_ops.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/onnx/import/control_flow.h"
#include "frontend/onnx/import/sequence_ops.h"
#include "frontend/onnx/import_failures.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {
namespace {

constexpr size_t kMaxNames = 3;  // of nodes with one operator

// What to do about operators of some names.
struct Advice {
  std::string_view prefix, text;
};
constexpr Advice kAdvice[] = {
    {"com.microsoft.nchwc.",
     "ONNX Runtime wrote the file for one kind of processor: train the model from before, or "
     "have it saved at ORT_ENABLE_EXTENDED"},
    {"ai.onnx.ml.TreeEnsemble", "decision trees have no gradient"},
    {"", "`plugin` loads a library with operators of other domains"},
};

bool IsKnown(const ParsedNode& node) {
  return FindControl(node) != nullptr || IsListOperator(node, {}) || IsGradientNode(node) || IsConstantNode(node) ||
         FindOnnxOp(node.domain, node.op_type) != nullptr;
}

class OperatorChecker {
 public:
  explicit OperatorChecker(const OnnxModel::Parsed& model) : model_(model) {}

  void Visit(const ParsedNode& node) {
    if (IsKnown(node)) return;
    const auto function = model_.functions.find({node.domain, node.op_type});
    if (function == model_.functions.end()) {
      const std::string op = StrCat(node.domain, node.domain.empty() ? "" : ".", node.op_type);
      unsupported_[Printable(op)].push_back(Printable(node.source));
    } else if (visited_.insert(function->first).second) {
      for (const ParsedNode& inner : function->second.graph.nodes) Visit(inner);
    }
  }

  absl::Status Summary() const {
    if (unsupported_.empty()) return absl::OkStatus();
    std::vector<std::string> parts;
    std::vector<NodeFailure> failures;
    for (const auto& [op, nodes] : unsupported_) {
      const size_t count = std::min(nodes.size(), kMaxNames);
      const std::vector<std::string> shown(nodes.begin(), nodes.begin() + static_cast<int64_t>(count));
      parts.push_back(
          StrCat(op, " (", nodes.size(), ": '", absl::StrJoin(shown, "', '"), nodes.size() > count ? "', …)" : "')"));
      failures.push_back(
          {.message = StrCat(op, " is not supported: '", absl::StrJoin(nodes, "', '"), "'"), .unsupported_op = op});
    }
    return WithImportFailures(
        absl::UnimplementedError(StrCat("unsupported operators: ", absl::StrJoin(parts, ", "), FindAdvice())),
        failures);
  }

 private:
  // Of the first operator that has a domain.
  std::string FindAdvice() const {
    const auto foreign =
        std::ranges::find_if(unsupported_, [](const auto& op) { return op.first.find('.') != op.first.npos; });
    if (foreign == unsupported_.end()) return "";
    const auto is_prefix = [&](const Advice& advice) { return foreign->first.starts_with(advice.prefix); };
    return StrCat("; ", std::ranges::find_if(kAdvice, is_prefix)->text);
  }

  const OnnxModel::Parsed& model_;
  std::map<std::string, std::vector<std::string>> unsupported_;  // node names by operator
  std::set<std::pair<std::string, std::string>> visited_;        // functions
};

}  // namespace

absl::Status CheckOperators(const OnnxModel::Parsed& model, const LiveGraph& live) {
  OperatorChecker checker(model);
  for (const ParsedNode& node : model.graph.nodes) {
    if (live.Contains(node)) checker.Visit(node);
  }
  return checker.Summary();
}

}  // namespace onnxtrain
