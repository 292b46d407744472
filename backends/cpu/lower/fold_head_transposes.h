// Folds the transposes around attention heads into the strides of cpu.Attention and cpu.AttentionGrad.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// Does FoldHeadTransposes replace the node: an Attention or AttentionGrad of float32, or of bf16 where the processor
// multiplies it?
bool CanFoldHeadTransposes(const Graph& graph, const Node& node);

// Replaces these nodes together with the transposes of their operands and results. Leaves dead nodes behind.
absl::StatusOr<Graph> FoldHeadTransposes(const Graph& graph);

}  // namespace onnxtrain::cpu
