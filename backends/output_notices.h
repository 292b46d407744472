// Computes when the outputs of a program are complete within a run, and when their memory is in use: outputs whose
// ranges do not overlap may be bound to the same bytes. Shared by the backends.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backends/memory_plan.h"

namespace onnxtrain {

// The first and the last node, by position in the run, that touch the memory to which an output is bound.
struct OutputRange {
  size_t first = 0, last = 0;
};

// Implemented, in addition to Program, by programs whose memory is planned (memory_plan.h).
class OutputRanges {
 public:
  virtual ~OutputRanges() = default;
  // Returns the ranges by output of Program::graph(). The notice of an output (Program::NotifyWhenComplete) follows the
  // last node of its range.
  virtual std::vector<OutputRange> TouchedRanges() const = 0;
};

struct OutputNotice {
  size_t nodes;  // how many nodes of MemoryPlan::order have run; kAfterCopies: after the final copies
  size_t group;
};
inline constexpr size_t kAfterCopies = static_cast<size_t>(-1);

// Returns one notice for each group of graph outputs (indices), in order of the run. After it the run neither writes
// nor reads the memory to which the outputs are bound. Different outputs must be bound to different memory.
std::vector<OutputNotice> PlanNotices(const Graph& graph, const MemoryPlan& plan,
                                      std::span<const std::vector<size_t>> groups);

// Implements OutputRanges::TouchedRanges. Positions are indices into MemoryPlan::order; its size stands for the final
// copies. An output whose memory no node touches is in use for the whole run.
std::vector<OutputRange> PlanOutputRanges(const Graph& graph, const MemoryPlan& plan);

}  // namespace onnxtrain
