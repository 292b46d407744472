// Finds the steps of a program that can be started at once.
#pragma once

#include <span>
#include <vector>

#include "backends/memory_plan.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::aten {

// The longest runs, of two and more, of neighbors in `order` that `may_batch` and of which none reads or writes bytes
// that another writes. As indices into `order`.
std::vector<std::vector<size_t>> FindIndependentRuns(const Graph& graph, const MemoryPlan& plan,
                                                     std::span<const int32_t> order, bool (*may_batch)(const Node&));

}  // namespace onnxtrain::aten
