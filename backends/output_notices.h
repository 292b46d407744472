// When the outputs of a program are complete within a run. Shared by the backends.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backends/memory_plan.h"
#include "backends/output_ranges.h"

namespace onnxtrain {

struct OutputNotice {
  size_t nodes;  // of MemoryPlan::order that have run; kAfterCopies: after the final copies
  size_t group;
};
inline constexpr size_t kAfterCopies = static_cast<size_t>(-1);

// Returns one notice for each group of graph outputs (indices), in the order of a run: from then on the run neither
// writes nor reads the memory that the outputs are bound to. Different outputs must be bound to different memory.
std::vector<OutputNotice> PlanNotices(const Graph& graph, const MemoryPlan& plan,
                                      std::span<const std::vector<size_t>> groups);

// As OutputRanges::TouchedRanges: places in MemoryPlan::order, of which the final copies are one behind the last. An
// output whose memory no node touches is in use for the whole run.
std::vector<OutputRange> PlanOutputRanges(const Graph& graph, const MemoryPlan& plan);

}  // namespace onnxtrain
