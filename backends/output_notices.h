// When the outputs of a program are complete within a run. Shared by the backends.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backends/memory_plan.h"

namespace onnxtrain {

// When the memory of a program's outputs is in use: outputs whose ranges do not overlap may be bound to the same bytes.

// Nodes, by their place in a run, from the first to the last one that touches the memory which an output is bound to.
struct OutputRange {
  size_t first = 0, last = 0;
};

// Implemented, in addition to Program, by programs whose memory is planned (memory_plan.h).
class OutputRanges {
 public:
  virtual ~OutputRanges() = default;
  // By output of Program::graph(). Program::NotifyWhenComplete tells of an output once the last node has run.
  virtual std::vector<OutputRange> TouchedRanges() const = 0;
};

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
