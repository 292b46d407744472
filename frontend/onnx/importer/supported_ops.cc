#include "frontend/onnx/importer/supported_ops.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/onnx/import_failures.h"
#include "frontend/onnx/importer/control_flow.h"
#include "frontend/onnx/importer/sequence_ops.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {
namespace {

constexpr size_t kMaxNames = 3;  // of nodes with one operator

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
    const bool foreign =
        std::ranges::any_of(unsupported_, [](const auto& op) { return op.first.find('.') != op.first.npos; });
    return WithImportFailures(
        absl::UnimplementedError(StrCat("unsupported operators: ", absl::StrJoin(parts, ", "),
                                        foreign ? "; `plugin` loads a library with operators of other domains" : "")),
        failures);
  }

 private:
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
