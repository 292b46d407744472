// Plans a generated kernel: assigns its nodes to passes over a row.
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

// The iteration space of a kernel: rows × columns elements in memory order.
struct KernelSpace {
  int64_t rows = 1, columns = 1;

  int64_t elements() const { return rows * columns; }
};

// The position of an element of a broadcast operand, as a function of its row and column.
struct OperandIndex {
  static constexpr int64_t kAnyRun = std::numeric_limits<int64_t>::max();

  std::string offset;   // element index for column c of row r, as a C++ expression
  bool of_row = false;  // depends on r only
  bool same = false;    // adjacent elements of the space read one element (true) or adjacent ones (false)
  int64_t run = 1;      // length of the aligned runs in which `same` holds
};

// Returns the index of an operand that broadcasts to `shape`, which has as many elements as the space.
OperandIndex MakeOperandIndex(const Shape& operand, const Shape& shape, const KernelSpace& space);

// The axes of a reduction as rows and columns of a matrix.
struct Fold {
  int64_t columns = 0;     // columns of the tensor as a matrix
  bool by_column = false;  // true: the leading axes are reduced, so each column is; false: each row
};

// Returns nullopt if the axes (empty: all) are neither the leading nor the trailing ones, or none is longer than 1.
std::optional<Fold> FindFold(const Shape& shape, std::vector<int64_t> axes);

// The indices on which a value of the body depends.
enum class Level : uint8_t {
  kConstant,   // a splat constant
  kElement,    // depends on row and column
  kRow,        // depends on the row
  kColumnSum,  // the sum of a column, complete at the end of the kernel
};

// The load of an element of a graph input.
struct OperandLoad {
  ValueId input = kNoValue;
  OperandIndex index;
  bool operator==(const OperandLoad& other) const { return input == other.input && index.offset == other.index.offset; }
};

struct Operand {
  ValueId value = kNoValue;  // a computed value or constant; kNoValue: a load
  int load = -1;
};

// One pass over the columns of a row.
struct KernelPass {
  std::vector<int> loads;           // made for every element: indices into KernelPlan::loads
  std::vector<int32_t> nodes;       // computed for every element, in order
  std::vector<int32_t> row_nodes;   // computed before the pass, once per row
  std::vector<int32_t> reductions;  // complete after the pass
};

struct KernelPlan {
  Graph graph;  // the expanded body
  KernelSpace space;
  bool by_row = false;                         // true if rows are reduced or columns summed
  bool wide = false;                           // float64
  std::vector<Level> level;                    // by value
  std::vector<bool> views;                     // by node: true if it computes nothing
  std::vector<std::vector<Operand>> operands;  // by node; views are skipped
  std::vector<OperandLoad> loads;
  std::vector<KernelPass> passes;
  std::vector<int32_t> last_row_nodes;  // computed after the last pass
  std::vector<int32_t> column_sums;     // nodes that sum columns
  // Values and loads that several passes need and the first one keeps in registers. With `recompute`, each pass
  // computes them again instead.
  std::vector<ValueId> kept_values;
  std::vector<int> kept_loads;
  bool recompute = false;
};

// Returns the value that `v` is a view of, through any number of views.
ValueId SkipViews(const KernelPlan& plan, ValueId v);

// Maximum registers per thread for values kept between passes and for column sums.
inline constexpr int64_t kMostKept = 64;

// Plans the kernel of a body. Fails if one kernel cannot compute it.
absl::StatusOr<KernelPlan> PlanKernel(const Graph& body);
// Plans the passes, with `copies` elements per thread: keeps values in registers if they fit, else recomputes them.
void PlanPasses(KernelPlan* plan, int64_t copies);

}  // namespace onnxtrain::aten
