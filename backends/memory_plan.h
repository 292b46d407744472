// Order and liveness → where every value lives. Shared by the backends; knows no device.
//
// Values are packed into one arena, the same bytes serving several values whose lives do not overlap. A view (Reshape)
// shares its input's place. An elementwise output may take over the place of an input of the same size that dies there.
// A graph output, and a value that is written `into` an input, lives directly in the bound memory where that is safe (the
// old value's last reader runs before, or is the elementwise node that writes it); otherwise it lives in the arena and
// is copied at the end of the run. The order is made such that the former is the rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "frontend/graph/graph.h"

namespace onnxtrain {

struct PlanOptions {
  size_t alignment = 64;
  // False (keep_values): every value has a place of its own in the arena, views and outputs included, and all outputs
  // are copied at the end of the run.
  bool reuse = true;
  std::vector<size_t> workspace_bytes;   // scratch per node, by node index; empty: none
};

struct Place {
  enum class Where : uint8_t { kNone, kArena, kInput, kOutput, kConstant };
  Where where = Where::kNone;  // kNone: never computed (a value without a place and readers)
  size_t offset = 0;           // kArena: bytes
  int32_t index = 0;           // kInput, kOutput: which graph input or output; kConstant: the value id of the Constant

  bool operator==(const Place&) const = default;
};

struct Copy {
  Place from, to;    // `to`: an output, an input that an output goes `into`, or the arena (to exchange two inputs)
  size_t bytes = 0;
};

struct MemoryPlan {
  // Node indices in execution order; Constants and dead nodes are left out. A view node is in the order and is to be
  // run as a copy where its input and output have different places, else not at all.
  std::vector<int32_t> order;
  std::vector<Place> places;             // by value id
  std::vector<size_t> workspace_offset;  // by node index; meaningful where it has workspace
  std::vector<Copy> copies;              // to be done in this order after the last node
  size_t arena_bytes = 0;
  size_t lower_bound = 0;
};

// The order is chosen among several (schedule.h) by simulated peak. Every node must be of a known operator. The same
// graph and options give the same plan.
MemoryPlan PlanMemory(const Graph& graph, const PlanOptions& options);

}  // namespace onnxtrain
