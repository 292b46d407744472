// What an error of Import tells programs: the failed nodes, one by one. It travels with the status.
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
  // The positive extents of the shapes that the node reads, and its integers that are known (the target of a Reshape):
  // sizes that the model demands are among them.
  std::vector<int64_t> extents;
};

absl::Status WithImportFailures(absl::Status status, const std::vector<NodeFailure>& failures);
// Returns all that WithImportFailures has attached; none for other errors.
std::vector<NodeFailure> GetImportFailures(const absl::Status& status);

}  // namespace onnxtrain
