// Plans a generated kernel: what it computes in which pass over a row.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "backends/torch/fuse/operand_index.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::aten {

// How a value of the body varies.
enum class Level : uint8_t {
  kConstant,   // a splat constant
  kElement,    // with row and column
  kRow,        // with the row
  kColumnSum,  // the sum of a column, complete at the end
};

// An element of a graph input, read where a value of the given shape is computed.
struct OperandLoad {
  ValueId input = kNoValue;
  OperandIndex index;
  bool operator==(const OperandLoad& other) const { return input == other.input && index.offset == other.index.offset; }
};

struct Operand {
  ValueId value = kNoValue;  // computed before, or constant; kNoValue: a load
  int load = -1;
};

// One pass over the columns of a row.
struct KernelPass {
  std::vector<int> loads;           // of elements
  std::vector<int32_t> nodes;       // that it computes for every element, in order
  std::vector<int32_t> row_nodes;   // computed before it, once per row
  std::vector<int32_t> reductions;  // whose result is complete behind it
};

struct KernelPlan {
  Graph graph;  // the expanded body
  KernelSpace space;
  bool by_row = false;                         // rows are reduced, or columns summed
  bool wide = false;                           // float64
  std::vector<Level> level;                    // by value
  std::vector<bool> views;                     // by node: it computes nothing
  std::vector<std::vector<Operand>> operands;  // by node; views are skipped
  std::vector<OperandLoad> loads;
  std::vector<KernelPass> passes;
  std::vector<int32_t> last_row_nodes;  // computed behind the last pass
  std::vector<int32_t> column_sums;     // nodes
  // What several passes need and the first keeps in registers; unless `recompute`, when each pass computes it again.
  std::vector<ValueId> kept_values;
  std::vector<int> kept_loads;
  bool recompute = false;
};

// The value before views.
ValueId SkipViews(const KernelPlan& plan, ValueId v);

// Most registers per thread that values kept between passes may take, and sums of columns.
inline constexpr int64_t kMostKept = 64;

// Fails where one kernel cannot compute the body.
absl::StatusOr<KernelPlan> PlanKernel(const Graph& body);
// Chooses what passes keep: `copies` elements per thread and value.
void PlanPasses(KernelPlan* plan, int64_t copies);

}  // namespace onnxtrain::aten
