// Attaches the nodes that failed to import to the status that Import returns, as a payload.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace onnxtrain {

// A node that failed, or all nodes of an operator that is not supported.
struct NodeFailure {
  std::string message;         // one line, which names the node or the operator and its nodes
  std::string unsupported_op;  // "Conv" or "com.microsoft.Gelu"; "" for a node
  // The positive extents of the node's operands, and its known integers (the target of a Reshape). A size that the
  // model requires is among them.
  std::vector<int64_t> extents;
};

absl::Status WithImportFailures(absl::Status status, const std::vector<NodeFailure>& failures);
// Returns the failures that WithImportFailures attached; empty for other errors.
std::vector<NodeFailure> GetImportFailures(const absl::Status& status);

}  // namespace onnxtrain
