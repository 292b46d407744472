// Chooses the order of nodes and the memory of every value. Shared by the backends; knows no device.
//
// Values are packed into one arena; values whose live ranges do not overlap share bytes. A view (Reshape) has the bytes
// of its input. An elementwise output may reuse the buffer of an input of the same size that dies there. A graph
// output, or a value that goes `into` an input, is written to bound memory directly if that is safe (the last reader of
// the old value runs before, or is the elementwise node that writes it); otherwise it is copied there at the end of
// the run. Orders are chosen so that copies are rare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backends/offload.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

struct PlanOptions {
  size_t alignment = 64;
  // Lets values share bytes. If false (keep_values), every value, including views and outputs, has separate bytes in
  // the arena, and all outputs are copied at the end of the run.
  bool reuse = true;
  std::vector<size_t> workspace_bytes;  // by node; empty: none
  // Of the orders whose peak is higher than the lowest by at most this share, the one with the fewest live bytes on
  // average is taken. Recomputation lowers the peak at the end of the forward pass, but not others.
  double peak_slack = 0;
  OffloadOptions offload;  // has no effect without `reuse`
};

struct Place {
  enum class Where : uint8_t { kNone, kArena, kOffloaded, kInput, kOutput, kConstant };
  Where where = Where::kNone;  // kNone: never computed
  size_t offset = 0;           // kArena, kOffloaded: bytes
  int32_t index = 0;           // index of the graph input or output; kConstant: value id of the Constant

  bool operator==(const Place&) const = default;
};

struct Copy {
  Place from, to;  // `to`: an output, an input that an output goes `into`, or the arena (to exchange two inputs)
  size_t bytes = 0;
};

// Bytes of the area for offloaded values, with the steps (indices into MemoryPlan::order) that touch them around the
// time in which a file holds them. The area has no other bytes there before `first` and after `last`.
struct Offload {
  size_t offset = 0, bytes = 0;
  int32_t first = 0, store = 0, load = 0, last = 0;
};

struct MemoryPlan {
  // Node indices in execution order, without Constants and dead nodes. A view node runs, as a copy, only if its
  // input and output have different places.
  std::vector<int32_t> order;
  std::vector<Place> places;             // by value id
  std::vector<size_t> workspace_offset;  // by node; valid if it has a workspace
  std::vector<size_t> workspace_bytes;   // as in the options
  std::vector<Copy> copies;              // made in this order after the last node
  size_t arena_bytes = 0;
  size_t lower_bound = 0;
  std::vector<Offload> offloads;
  size_t offload_area = 0;      // bytes of the area for offloaded values, of which few are in memory at a time
  size_t offload_resident = 0;  // the greatest sum of those

  size_t memory_bytes() const { return arena_bytes + offload_resident; }
};

// Returns the plan of the candidate order with the lowest peak. Every operator must be registered. Deterministic.
MemoryPlan PlanMemory(const Graph& graph, const PlanOptions& options);

}  // namespace onnxtrain
