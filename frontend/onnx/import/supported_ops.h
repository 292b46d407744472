// Whether every operator of a model can be imported.
#pragma once

#include "frontend/onnx/import/live_graph.h"

namespace onnxtrain {

// Collects all unsupported operators of live nodes, and of the functions that they call, into one error with counts and
// node names. Needs no shapes. Bodies are checked when they are imported, as a branch may never be taken.
absl::Status CheckOperators(const OnnxModel::Parsed& model, const LiveGraph& live);

}  // namespace onnxtrain
