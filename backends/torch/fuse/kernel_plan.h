// Plans a generated kernel: what it computes in which pass over a row.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/graph/type.h"

namespace onnxtrain::aten {

// Where a kernel finds the element of a broadcast operand.

// The iteration space of a kernel: rows × columns elements in the order of memory.
struct KernelSpace {
  int64_t rows = 1, columns = 1;

  int64_t elements() const { return rows * columns; }
};

struct OperandIndex {
  static constexpr int64_t kAnyRun = std::numeric_limits<int64_t>::max();

  std::string offset;   // of the element at column c of row r: an expression of C++
  bool of_row = false;  // depends on r alone
  bool same = false;    // adjacent elements are one and the same; else they are adjacent
  int64_t run = 1;      // how many elements, from a multiple of that number on, are so
};

// `operand` broadcasts to `shape`, which has the elements of the space.
OperandIndex MakeOperandIndex(const Shape& operand, const Shape& shape, const KernelSpace& space);

// The axes of a reduction as rows and columns.

struct Fold {
  int64_t columns = 0;     // of the tensor as a matrix
  bool by_column = false;  // folds leading axes: reduces each column; else each row
};

// Nullopt where the axes (empty: all) are neither the leading nor the trailing ones, or none is longer than 1.
std::optional<Fold> FindFold(const Shape& shape, std::vector<int64_t> axes);

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
