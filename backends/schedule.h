// Orders in which the nodes of a graph can run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <vector>

#include "backends/flow.h"

namespace onnxtrain {

// Topological orders of the running nodes that obey Flow::before, none of them more than once, each by another greedy
// rule: the order of the list; the same, but a node that frees at least what it takes runs as soon as it can (updates,
// weight gradients); lowest memory while running first; largest net release first. What is made of bound memory alone (packed
// weights, random masks) comes in all of them right before the first node that needs it: it takes no memory before, and is
// still in the caches when it is read.
// `workspace` is by node index, or empty.
std::vector<std::vector<int32_t>> CandidateOrders(const Flow& flow, const std::vector<size_t>& workspace);

}  // namespace onnxtrain
