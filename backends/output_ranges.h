// When the memory of a program's outputs is in use: outputs whose ranges do not overlap may be bound to the same bytes.
#pragma once

#include <cstddef>
#include <vector>

namespace onnxtrain {

// Nodes, by their place in a run, from the first to the last one that touches the memory which an output is bound to.
struct OutputRange {
  size_t first = 0, last = 0;
};

// What programs of a backend that plans its memory (memory_plan.h) implement beside Program.
class OutputRanges {
 public:
  virtual ~OutputRanges() = default;
  // By output of Program::graph(). Program::NotifyWhenComplete tells of an output once the last node has run.
  virtual std::vector<OutputRange> TouchedRanges() const = 0;
};

}  // namespace onnxtrain
