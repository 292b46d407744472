#include "backends/cpu/kernels/row_functions.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "backends/cpu/kernels/typed.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"

namespace onnxtrain::cpu {

// Computes reductions over any axes, and cumulative sums. Results do not depend on the number of threads.

struct ReducerTable {
  Reducer sum, max, min, prod, sum_squares;
  Reducer squared_norm;  // sum_squares with a result in double precision
};

// An element of a tensor of bf16.
struct StoredBFloat16 {
  uint16_t bits;

  explicit operator double() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

}  // namespace onnxtrain::cpu

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/reduce-inl.h"
#include "hwy/foreach_target.h"

#include "backends/cpu/kernels/reduce-inl.h"

namespace onnxtrain::cpu {

HWY_EXPORT(FloatReducers);
HWY_EXPORT(BFloat16SquaredNorm);

namespace {

constexpr int64_t kColumns = 512;  // most accumulators on the stack
constexpr int64_t kMaxParts = 16, kRowsPerPart = 32;
constexpr int64_t kChunk = 1 << 16;  // elements of a row per accumulator, if there are few rows

// The merged axes of the input, divided into those that are kept and those that are reduced.
struct ReducePlan {
  Loop kept;          // operand 0: output, 1: input
  Loop folded;        // operand 0: input
  bool rows = false;  // the innermost input axis is reduced: it is folded.inner(), else kept.inner()
  size_t input_size = 4, output_size = 4;
  int64_t chunks = 1;  // chunks of the innermost axis, if rows
  int64_t parts = 1;   // parts of the reduced axis, if not rows
  double divisor = 1;
};

ReducePlan MakePlan(const KernelContext& c) {
  const Shape& x = c.in().shape;
  std::vector<bool> fold(x.size(), false);
  const std::vector<int64_t> axes = c.attrs().Ints("axes");
  for (int64_t a : axes) fold[a] = true;
  if (axes.empty()) fold.assign(x.size(), true);

  Shape y = x;
  for (size_t a = 0; a < x.size(); ++a) y[a] = fold[a] ? 1 : x[a];
  const Shape strides[] = {BroadcastStrides(y, x), Strides(x)};
  const Loop all = MakeLoop(x, strides);  // has no extents of 1, so an axis with stride 0 in y is reduced

  ReducePlan plan;
  std::vector<Shape> kept(2), folded(1);
  Shape kept_extents, folded_extents;
  for (size_t a = 0; a < all.extents.size(); ++a) {
    const bool is_folded = all.strides[a][0] == 0 && all.extents[a] != 1;
    (is_folded ? folded_extents : kept_extents).push_back(all.extents[a]);
    if (is_folded) {
      folded[0].push_back(all.strides[a][1]);
    } else {
      kept[0].push_back(all.strides[a][0]);
      kept[1].push_back(all.strides[a][1]);
    }
    plan.rows = is_folded;
  }
  plan.kept = MakeLoop(kept_extents, kept);
  plan.folded = MakeLoop(folded_extents, folded);
  plan.input_size = DTypeSize(c.in().dtype);
  plan.output_size = DTypeSize(c.out().dtype);
  if (c.node.op == "ReduceMean") plan.divisor = static_cast<double>(plan.folded.size());
  const bool matrix = !plan.rows && plan.kept.rows() == 1 && plan.folded.rows() == 1;
  if (matrix) plan.parts = std::clamp<int64_t>(plan.folded.inner() / kRowsPerPart, 1, kMaxParts);
  if (plan.rows && plan.kept.size() < 64) plan.chunks = std::max<int64_t>(1, plan.folded.inner() / kChunk);
  return plan;
}

// Reduces one chunk of the innermost axis of one output element.
void ReduceChunk(const ReducePlan& p, const Reducer& f, const char* x, int64_t chunk, void* acc) {
  f.start(acc, 1);
  const int64_t inner = p.folded.inner();
  const int64_t begin = inner * chunk / p.chunks, end = inner * (chunk + 1) / p.chunks;
  ForRows(p.folded, 0, p.folded.size(),
          [&](const OperandOffsets& at, int64_t) { f.row(x + (at[0] + begin) * p.input_size, end - begin, acc); });
}

int64_t ReduceCost(const ReducePlan& p) { return std::max<int64_t>(1, p.folded.size() / p.chunks); }

// Reduces long rows to few outputs: reduces all chunks, then merges their results in order.
void ReduceByChunks(const ReducePlan& p, const Reducer& f, const Args& args) {
  const int64_t outputs = p.kept.size();
  auto* partial = static_cast<char*>(args.workspace);
  Parallel(outputs * p.chunks, ReduceCost(p), [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      ForRows(p.kept, task / p.chunks, task / p.chunks + 1, [&](const OperandOffsets& at, int64_t) {
        ReduceChunk(p, f, args.in<char>() + at[1] * p.input_size, task % p.chunks, partial + task * f.accumulator);
      });
    }
  });
  ForRows(p.kept, 0, outputs, [&](const OperandOffsets& at, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      char* first = partial;
      for (int64_t k = 1; k < p.chunks; ++k) f.merge(first, partial + k * f.accumulator, 1);
      f.finish(first, 1, p.divisor, args.out<char>() + (at[0] + i * p.kept.InnerStride(0)) * p.output_size);
      partial += p.chunks * f.accumulator;
    }
  });
}

void ReduceRows(const ReducePlan& p, const Reducer& f, const Args& args) {
  Parallel(p.kept.size(), ReduceCost(p), [&](int64_t begin, int64_t end) {
    ForRows(p.kept, begin, end, [&](const OperandOffsets& at, int64_t count) {
      alignas(16) char acc[16];
      for (int64_t i = 0; i < count; ++i) {
        ReduceChunk(p, f, args.in<char>() + (at[1] + i * p.kept.InnerStride(1)) * p.input_size, 0, acc);
        f.finish(acc, 1, p.divisor, args.out<char>() + (at[0] + i * p.kept.InnerStride(0)) * p.output_size);
      }
    });
  });
}

void ReduceColumns(const ReducePlan& p, const Reducer& f, const Args& args) {
  Parallel(p.kept.size(), p.folded.size(), [&](int64_t begin, int64_t end) {
    alignas(64) char accs[kColumns * sizeof(double)];
    ForRows(p.kept, begin, end, [&](const OperandOffsets& at, int64_t count) {
      for (int64_t first = 0; first < count; first += kColumns) {
        const int64_t n = std::min(kColumns, count - first);
        f.start(accs, n);
        const char* x = args.in<char>() + (at[1] + first) * p.input_size;
        ForRows(p.folded, 0, p.folded.size(), [&](const OperandOffsets& row, int64_t length) {
          for (int64_t i = 0; i < length; ++i) {
            f.columns(x + (row[0] + i * p.folded.InnerStride(0)) * p.input_size, n, accs);
          }
        });
        f.finish(accs, n, p.divisor, args.out<char>() + (at[0] + first) * p.output_size);
      }
    });
  });
}

// Reduces a matrix of many rows to one row: reduces contiguous parts, then merges their results in order.
void ReduceColumnParts(const ReducePlan& p, const Reducer& f, const Args& args) {
  const int64_t columns = p.kept.inner(), rows = p.folded.inner(), row_bytes = p.folded.InnerStride(0) * p.input_size;
  auto* partial = static_cast<char*>(args.workspace);
  Parallel(p.parts, rows / p.parts * columns, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      char* mine = partial + part * columns * f.accumulator;
      f.start(mine, columns);
      for (int64_t r = rows * part / p.parts; r < rows * (part + 1) / p.parts; ++r)
        f.columns(args.in<char>() + r * row_bytes, columns, mine);
    }
  });
  Parallel(columns, p.parts, [&](int64_t begin, int64_t end) {
    char* first = partial + begin * f.accumulator;
    for (int64_t part = 1; part < p.parts; ++part) f.merge(first, first + part * columns * f.accumulator, end - begin);
    f.finish(first, end - begin, p.divisor, args.out<char>() + begin * p.output_size);
  });
}

const Reducer& MakeReducer(const KernelContext& c) {
  if (c.in().dtype == DType::kBFloat16) return HWY_DYNAMIC_DISPATCH(BFloat16SquaredNorm)();
  const ReducerTable* table = &HWY_DYNAMIC_DISPATCH(FloatReducers)();
  if (c.in().dtype != DType::kFloat32) {
    table = ForNumber(c.in().dtype, []<typename T>(T) { return &HWY_NAMESPACE::kReducers<T>; });
  }
  if (c.node.op == "ReduceMax") return table->max;
  if (c.node.op == "ReduceMin") return table->min;
  if (c.node.op == "cpu.ReduceSumSquares") return table->sum_squares;
  if (c.node.op == "SquaredNorm") return table->squared_norm;
  return c.node.op == "ReduceProd" ? table->prod : table->sum;
}

absl::StatusOr<Kernel> PrepareReduce(const KernelContext& c) {
  const ReducePlan plan = MakePlan(c);
  const Reducer folds = MakeReducer(c);
  const bool parts = plan.parts > 1, chunks = plan.chunks > 1;
  const auto reduce = plan.rows ? (chunks ? ReduceByChunks : ReduceRows) : parts ? ReduceColumnParts : ReduceColumns;
  const size_t partials =
      parts || chunks ? plan.kept.size() * std::max(plan.chunks, plan.parts) * folds.accumulator : 0;
  return Kernel{.run = [=](const Args& args) { reduce(plan, folds, args); }, .workspace = partials};
}

template <typename T>
void CumulateLine(const T* x, T* y, const AxisView& v, bool exclusive, bool reverse) {
  typename HWY_NAMESPACE::Wide<T>::Type sum = 0;
  for (int64_t k = 0; k < v.n; ++k) {
    const int64_t at = (reverse ? v.n - 1 - k : k) * v.inner;
    const T here = x[at];
    if (exclusive) y[at] = static_cast<T>(sum);
    sum += here;
    if (!exclusive) y[at] = static_cast<T>(sum);
  }
}

absl::StatusOr<Kernel> PrepareCumSum(const KernelContext& c) {
  const AxisView v = ViewAround(c.in().shape, c.attrs().Int("axis"));
  const bool exclusive = c.attrs().Int("exclusive") != 0, reverse = c.attrs().Int("reverse") != 0;
  return ForNumber(c.in().dtype, [&]<typename T>(T) {
    return Kernel{.run = [=](const Args& args) {
      Parallel(v.outer * v.inner, v.n, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t first = i / v.inner * v.n * v.inner + i % v.inner;
          CumulateLine(args.in<T>() + first, args.out<T>() + first, v, exclusive, reverse);
        }
      });
    }};
  });
}

}  // namespace

const Reducer& GetFloatSumReducer() { return HWY_DYNAMIC_DISPATCH(FloatReducers)().sum; }

std::span<const KernelRow> ReduceKernels() {
  static constexpr KernelRow kRows[] = {
      {"ReduceSum", PrepareReduce, kReals | kInts},  {"ReduceMean", PrepareReduce, kReals},
      {"ReduceMax", PrepareReduce, kReals | kInts},  {"ReduceMin", PrepareReduce, kReals | kInts},
      {"ReduceProd", PrepareReduce, kReals | kInts}, {"CumSum", PrepareCumSum, kReals | kInts},
      {"cpu.ReduceSumSquares", PrepareReduce},       {"SquaredNorm", PrepareReduce, kReals | Only(DType::kBFloat16)},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
