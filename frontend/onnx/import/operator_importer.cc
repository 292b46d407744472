#include "frontend/onnx/import/operator_importer.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/onnx/import/node_context.h"
#include "frontend/ops/import/index.h"

namespace onnxtrain {
namespace {

absl::Status CheckArity(const std::vector<Val>& inputs, const OnnxOp& op) {
  const auto count = static_cast<int>(inputs.size());
  if (count < op.min_inputs || count > op.max_inputs)
    return Invalid("has ", count, " inputs, which is too ", count < op.min_inputs ? "few" : "many");
  for (int i = 0; i < op.min_inputs; ++i) {
    if (!inputs[i].valid()) return Invalid("input ", i, " is missing");
  }
  return absl::OkStatus();
}

// The node's inputs, without absent ones at the end.
absl::StatusOr<std::vector<Val>> FindOperands(SymbolTable& symbols, ImportScope& scope, const ParsedNode& node) {
  std::vector<Val> operands;
  for (const std::string& name : node.inputs) {
    const std::optional<Val> v = name.empty() ? Val() : symbols.FindTensor(scope, name, node);
    if (!v) return AlreadyReported();
    operands.push_back(*v);
  }
  while (!operands.empty() && !operands.back().valid()) operands.pop_back();
  return operands;
}

absl::StatusOr<NodeView> ViewNode(ImportState& state, ImportScope& scope, const ParsedNode& node, const OnnxOp& op) {
  NodeView view{.domain = op.domain,
                .op_type = node.op_type,
                .name = state.builder.source(),
                .version = 1,
                .num_outputs = static_cast<int>(node.outputs.size()),
                .strings = node.strings};
  if (auto opset = scope.opsets->find(node.domain); opset != scope.opsets->end()) {
    view.version = static_cast<int>(opset->second.newest);
    view.older_version = opset->second.oldest;
  }
  ASSIGN_OR_RETURN(view.inputs, FindOperands(state.symbols, scope, node));
  RETURN_IF_ERROR(CheckArity(view.inputs, op));
  for (const std::string& name : node.outputs)
    view.used.push_back(!name.empty() && (!scope.is_top() || state.live.IsRead(name)));
  ASSIGN_OR_RETURN(view.attrs, ResolveAttrs(scope, node));
  state.types.MapAttrs(node, &view.attrs);
  // A row that was guessed is trained like what else a user has named.
  if (!state.options.constant_factors && node.fx == nullptr) view.attrs.Erase(kPaddingRow);
  return view;
}

}  // namespace

bool HasFrozenScale(const ImportOptions& options, const ParsedNode& node) {
  return node.op_type == "BatchNormalization" && node.inputs.size() > 1 &&
         options.frozen_scales.count(node.inputs[1]) > 0;
}

ImportValuesOr ImportOperator(ImportState& state, ImportScope& scope, const ParsedNode& node, const OnnxOp& op) {
  ASSIGN_OR_RETURN(NodeView view, ViewNode(state, scope, node, op));
  state.known.Update();  // initializers that the view has created
  RETURN_IF_ERROR(state.batch_unfixer.UnfixNode(node, &view.inputs, &view.attrs));
  NodeImportContext context(state, scope, node, view);
  ASSIGN_OR_RETURN(std::vector<Val> results, op.import(context));
  RETURN_IF_ERROR(state.builder.status());
  if (context.opset_matters())
    return Invalid("means one thing in opset ", view.version, " and another in ", *view.older_version,
                   ", and the file imports both");
  results.resize(std::max(results.size(), node.outputs.size()));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (view.used[i] && !results[i].valid()) return absl::UnimplementedError(StrCat("output ", i, " is not supported"));
  }
  return ImportValues(results.begin(), results.end());
}

}  // namespace onnxtrain
