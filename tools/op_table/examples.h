// One valid node of every ONNX operator that we import: what the table of operators is made from, and what tests bend.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/ops/single_node_importer.h"

namespace onnxtrain {

struct OpExample {
  struct Input {
    enum Kind { kFed, kWeight, kConstant, kAbsent } kind = kFed;
    Type type;         // fed, weight
    HostTensor value;  // constant
  };
  std::string domain, op_type;
  int version = 17;
  std::vector<Input> inputs;
  Attrs attrs;
  int outputs = 1;
};

// Of the table in examples.cc, or, where an operator is not there, of inputs that suit most: the first that imports.
// Fails where none does: then the operator belongs in the table.
absl::StatusOr<OpExample> FindExample(const OnnxOp& op);

// The node, not yet imported, for training. `example` must outlive it.
std::unique_ptr<SingleNodeImporter> MakeExampleNode(const OpExample& example);

// Imported: its inputs, and outputs "y0", … .
absl::StatusOr<Graph> ImportExample(const OpExample& example);

}  // namespace onnxtrain
