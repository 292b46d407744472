// Orders of nodes that need little memory: the part of memory planning before any bytes have places.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/dataflow.h"

namespace onnxtrain {

// Returns distinct topological orders of the live nodes that obey Dataflow::before, one per greedy rule: list order;
// list order, but a node that frees at least as much as it allocates runs as soon as it is ready; the same, but also a
// node that does so together with those that use its results at once (a weight's gradient, its update and the rounding
// of that), which then follow it, unless that raises the peak so far; lowest memory while running; largest net release.
// In all of them, a node that reads bound memory alone (packed weights, random masks) runs right before its first user:
// until then it takes no memory, and the user finds its result in the caches. Programs with collective operators have
// the list order alone: ranks whose batches differ in size must meet in the same order. `workspace` is by node, or
// empty.
std::vector<std::vector<int32_t>> CandidateOrders(const Dataflow& flow, const std::vector<size_t>& workspace);

}  // namespace onnxtrain
