// Finds consecutive nodes of a program that one launch can compute.
#pragma once

#include <span>
#include <vector>

#include "backends/memory_plan.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::aten {

// Returns maximal sequences of two or more consecutive nodes of `order`, as indices into it. All nodes of a sequence
// satisfy `may_batch`, and none reads or writes bytes that another one writes.
std::vector<std::vector<size_t>> FindIndependentRuns(const Graph& graph, const MemoryPlan& plan,
                                                     std::span<const int32_t> order, bool (*may_batch)(const Node&));

}  // namespace onnxtrain::aten
