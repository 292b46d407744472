// Generates docs/reference/operators.md: for each ONNX operator its canonical operators, gradient and backends.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/ops/import/onnx_import.h"
#include "frontend/ops/single_node_importer.h"

namespace onnxtrain {

// Returns the whole file, which depends on the operators and backends alone. Fails if an operator has no example.
absl::StatusOr<std::string> OpTablePage();

// Returns true if a gradient flows through the operator's example to one of its inputs.
absl::StatusOr<bool> HasGradient(const OnnxOp& op);

// A valid node of an ONNX operator, for the table, and for tests to modify.
struct OpExample {
  struct Input {
    enum Kind { kFed, kWeight, kConstant, kAbsent } kind = kFed;
    Type type;         // of kFed and kWeight
    HostTensor value;  // of kConstant
  };
  std::string domain, op_type;
  int version = 17;
  std::vector<Input> inputs;
  Attrs attrs;
  int outputs = 1;
};

// Returns the operator's example in the table of examples.cc, or else a node with the first of some common inputs that
// imports. Fails if none does; then the table needs an example.
absl::StatusOr<OpExample> FindExample(const OnnxOp& op);

// Returns an importer of the node, for training. `example` must outlive it.
std::unique_ptr<SingleNodeImporter> MakeExampleNode(const OpExample& example);

// Returns the imported node as a graph with outputs "y0", "y1", ….
absl::StatusOr<Graph> ImportExample(const OpExample& example);

}  // namespace onnxtrain
