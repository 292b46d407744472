// Imports the nodes of a model.
#pragma once

#include "frontend/onnx/import/control_flow.h"
#include "frontend/onnx/import/import_state.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {

// Returns true if the node is a BatchNormalization whose scale is frozen, so that it stays in inference mode.
bool HasFrozenScale(const ImportOptions& options, const ParsedNode& node);

// Imports one node by the row of its ONNX operator (frontend/ops/import) and returns the values of its outputs. CanRead
// must have returned true.
ImportValuesOr ImportOperator(ImportState& state, ImportScope& scope, const ParsedNode& node, const OnnxOp& op);

// Imports nodes into the state's graph, including called functions and bodies. Collects errors of nodes in the state
// and skips nodes that depend on a failed one.
class GraphImporter {
 public:
  explicit GraphImporter(ImportState* state) : state_(*state) {}

  // Imports the live nodes of the top scope, or all nodes of another scope. Fails only if the import must stop at once.
  absl::Status ImportNodes(ImportScope& scope);

 private:
  ImportValuesOr ImportNode(ImportScope& scope, const ParsedNode& node);
  ImportValuesOr ImportControl(ControlFn control, ImportScope& scope, const ParsedNode& node, ImportValues inputs);
  ImportValuesOr ImportList(ImportScope& scope, const ParsedNode& node, const ImportValues& inputs);
  ImportValuesOr ImportGradient(ImportScope& scope, const ParsedNode& node);
  absl::StatusOr<std::optional<Val>> ImportHiddenWeight(ImportScope& scope, const ParsedNode& node);
  ImportValuesOr ImportCall(ImportScope& scope, const ParsedNode& node, const ParsedFunction& function);
  ImportValuesOr ImportBody(ImportScope& scope, const ParsedNode& node, BodyCall call);
  ImportValues FindOutputs(ImportScope& scope, size_t count, const ParsedNode& node);
  // Returns the extents of a NodeFailure.
  std::vector<int64_t> FindExtents(ImportScope& scope, const ParsedNode& node);
  absl::Status CountExpanded(int64_t nodes);

  ImportState& state_;
  int64_t expanded_ = 0;  // nodes of functions, bodies and gradients so far
};

}  // namespace onnxtrain
