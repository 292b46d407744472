// Kernels that compute in float32 and read and write bf16 themselves.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// Has the operator (without "cpu.") a kernel that reads its tensors as bf16?
bool ReadsHalves(std::string_view op);

// Of a graph that MoveChannelsLast made: a node of such a kernel that stands between casts from and to bf16 takes their place, and a
// convolution of bf16 writes it where nobody reads more. Elementwise readers of a value widened for several of them widen it each for
// itself: then that is part of their chains, and within a chain nothing is rounded. Leaves dead nodes behind.
absl::StatusOr<Graph> AbsorbCasts(const Graph& graph);

}  // namespace onnxtrain::cpu
