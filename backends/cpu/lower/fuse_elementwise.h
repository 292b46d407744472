// Fuses elementwise operators, and reductions of their values, into chains (cpu.Fused) that run tile by tile.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"

namespace onnxtrain::cpu {

// Merges a producer with its users where no path between them leaves the chain, all are of one shape, and the bounds of
// fused.h hold. Every value has the bits of the unfused operators, but for reductions, which sum in another order.
absl::StatusOr<FusedGraph> FuseElementwise(const Graph& graph);

// By node: would FuseElementwise leave the node alone, or make it part of a chain of sums, casts to and from bf16 and
// reductions alone? A kernel with such operators of its own can take these nodes instead (fuse_norm.h).
std::vector<bool> FindSumChains(const Graph& graph);

}  // namespace onnxtrain::cpu
