// Order and liveness → where every value lives. Shared by the backends; knows no device.
//
// Values are packed into one arena, the same bytes serving several values whose lives do not overlap. A view (Reshape)
// shares its input's place. An elementwise output may take over the place of an input of the same size that dies there.
// A graph output, and a value that is written `into` an input, lives directly in the bound memory where that is safe (the
// old value's last reader runs before, or is the elementwise node that writes it); otherwise it lives in the arena and
// is copied at the end of the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "frontend/graph/graph.h"

namespace onnxtrain {

struct PlanOptions {
  size_t alignment = 64;
  bool reuse = true;                     // false: every value has a place of its own (keep_values)
  std::vector<size_t> workspace_bytes;   // scratch per node, by node index; empty: none
};

struct Place {
  enum class Where : uint8_t { kNone, kArena, kInput, kOutput, kConstant };
  Where where = Where::kNone;  // kNone: never computed (a value without a place and readers)
  size_t offset = 0;           // kArena: bytes
  int32_t index = 0;           // kInput, kOutput: which graph input or output; kConstant: the value id of the Constant
};

struct Copy {
  ValueId value;    // lives in the arena, in an input or in a constant
  int32_t output;   // graph output (or the input it goes into) that receives it at the end of the run
};

struct MemoryPlan {
  std::vector<int32_t> order;            // node indices in execution order; Constants and dead nodes are left out
  std::vector<Place> places;             // by value id
  std::vector<size_t> workspace_offset;  // by node index; meaningful where it has workspace
  std::vector<Copy> copies;
  size_t arena_bytes = 0;
  size_t lower_bound = 0;
};

// The order is chosen among several (original; update-as-soon-as-possible; lowest peak first) by simulated peak.
MemoryPlan PlanMemory(const Graph& graph, const PlanOptions& options);

}  // namespace onnxtrain
