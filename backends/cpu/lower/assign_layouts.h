// Which values of a graph are stored channels last.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// Gives values [N,C,…] the layouts that kernels prefer, with transposes where two layouts meet. Convolutions that
// oneDNN runs well channels last always get it (KernelRow::prefers); operators that have a kernel for it, or compute in
// any order, get it where that leaves fewer bytes to be transposed. Lowers convolutions as lower_conv.h says. All nodes
// must have kernels. Leaves dead nodes behind.
absl::StatusOr<Graph> AssignLayouts(const Graph& graph);

}  // namespace onnxtrain::cpu
