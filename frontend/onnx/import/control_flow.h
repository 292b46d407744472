// Resolves If, Loop, Scan and SequenceMap at import. Imports one branch of an If with a known condition, else both
// branches, and the body of a loop once per iteration. Bodies read the weights of the enclosing graphs, so the copies
// share them. Operators on sequences and optionals need no nodes, because the elements of a list are known at import.
#pragma once

#include <functional>
#include <string_view>

#include "frontend/onnx/import/weight_table.h"

namespace onnxtrain {

// Arguments for the import of one copy of a body.
struct BodyCall {
  std::string_view attribute;  // the attribute that holds the body
  std::string label;           // branch or iteration, which becomes part of the names of this copy; may be empty
  ImportValues inputs;
  bool conditional = false;  // true: the body may be skipped at run time
};

// A node with bodies, and the state that its import needs.
struct ControlNode {
  const ParsedNode& node;
  const ImportScope& scope;
  ImportValues inputs;
  const LiveGraph& live;
  Builder& builder;
  KnownValues& known;
  // Imports a body and returns its outputs, all of them valid. Reports a failure in the body itself and returns
  // AlreadyReported.
  std::function<ImportValuesOr(BodyCall)> import_body;

  // Returns true if anything reads an output of the node.
  bool IsRead(const std::string& output) const { return !output.empty() && (!scope.is_top() || live.IsRead(output)); }
};

// Returns the graph in an attribute of the node.
absl::StatusOr<const ParsedGraph*> FindBody(const ParsedNode& node, std::string_view attribute);

using ControlFn = ImportValuesOr (*)(ControlNode&);

// Returns the importer of the node; null if it has no bodies to resolve.
ControlFn FindControl(const ParsedNode& node);

ImportValuesOr ImportIf(ControlNode& c);
ImportValuesOr ImportLoop(ControlNode& c);
ImportValuesOr ImportScan(ControlNode& c);
ImportValuesOr ImportSequenceMap(ControlNode& c);

// Returns x at index i of an axis, without that axis.
Val ElementAt(Val x, int64_t axis, int64_t i);

// Stacks the values of a body output over all iterations along a new axis. Without iterations, takes the shape from the
// declared type of the output. `declared` may be null if `parts` is not empty.
absl::StatusOr<Val> StackIterations(Builder& b, const std::vector<Val>& parts, int64_t axis,
                                    const ParsedValue* declared);

// Returns true if the node is an operator on sequences or optionals, or an Identity of a list.
bool IsListOperator(const ParsedNode& node, const ImportValues& inputs);

// Returns the values of the node's outputs. Positions and sizes must be known at import.
ImportValuesOr ImportListOperator(const ParsedNode& node, const Attrs& attrs, const ImportValues& inputs, Builder* b,
                                  KnownValues* known);

}  // namespace onnxtrain
