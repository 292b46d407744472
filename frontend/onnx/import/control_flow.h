// If, Loop, Scan and SequenceMap, resolved at import: a branch that is known to be taken is imported once, both
// branches otherwise, and the body of a loop once per iteration. Bodies read the weights of the enclosing graphs, so
// the copies share them.
#pragma once

#include <functional>
#include <string_view>

#include "frontend/onnx/import/known_values.h"

namespace onnxtrain {

// How to import a body of a node.
struct BodyCall {
  std::string_view attribute;  // that holds the body
  std::string label;           // of this copy, part of its names: the branch or iteration; may be empty
  ImportValues inputs;
  bool conditional = false;  // whether the body may be skipped at run time
};

// A node with bodies, and what importing it takes.
struct ControlNode {
  const ParsedNode& node;
  const ImportScope& scope;
  ImportValues inputs;
  const LiveGraph& live;
  Builder& builder;
  KnownValues& known;
  // Imports a body and returns its outputs, all of them valid. A failure within is reported there and comes back as
  // AlreadyReported.
  std::function<ImportValuesOr(BodyCall)> import_body;

  // Whether anything reads an output of the node.
  bool IsRead(const std::string& output) const { return !output.empty() && (!scope.is_top() || live.IsRead(output)); }
};

// The graph that an attribute of the node holds.
absl::StatusOr<const ParsedGraph*> FindBody(const ParsedNode& node, std::string_view attribute);

using ControlFn = ImportValuesOr (*)(ControlNode&);

// Null where the node has no bodies to resolve.
ControlFn FindControl(const ParsedNode& node);

ImportValuesOr ImportIf(ControlNode& c);
ImportValuesOr ImportLoop(ControlNode& c);
ImportValuesOr ImportScan(ControlNode& c);
ImportValuesOr ImportSequenceMap(ControlNode& c);  // control_flow.cc

// x at position i of an axis, which is dropped.
Val ElementAt(Val x, int64_t axis, int64_t i);

// Stacks what a body output gave in each iteration along a new axis. Without iterations the declared type of the output
// decides the shape. `declared` may be null where there are parts.
absl::StatusOr<Val> StackIterations(Builder& b, const std::vector<Val>& parts, int64_t axis,
                                    const ParsedValue* declared);

}  // namespace onnxtrain
