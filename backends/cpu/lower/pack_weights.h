// Packs the weights of products into the layout that oneDNN multiplies fastest.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// Replaces MatMul by cpu.MatMul of a cpu.PackWeight where enough rows share the packed weight. Packing casts float32
// masters to bf16 on the way. Leaves dead nodes behind.
absl::StatusOr<Graph> PackWeights(const Graph& graph);

}  // namespace onnxtrain::cpu
