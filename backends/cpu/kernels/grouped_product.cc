// Multiplies each row by one of several matrices: rows of one matrix are copied next to each other as float32, are
// multiplied together, and the results are copied back.
#include "backends/cpu/kernels/grouped_product.h"

#include <algorithm>

#include "backends/cpu/kernels/dequantized_tiles.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/base/small_float.h"
#include "frontend/base/status.h"
#include "frontend/ops/grouped_product.h"

namespace onnxtrain::cpu {
namespace {

// The rows of each group in workspace memory: start[g] … start[g + 1] − 1 of `order`.
struct RowGroups {
  int64_t *start, *order;
};

// Parts of the workspace, by offset.
class Workspace {
 public:
  template <typename T>
  size_t Add(int64_t count) {
    const size_t at = size_;
    size_ += Aligned64(static_cast<size_t>(count) * sizeof(T));
    return at;
  }
  size_t size() const { return size_; }

 private:
  size_t size_ = 0;
};

template <typename T>
T* PartAt(const Args& args, size_t offset) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(args.workspace) + offset);
}

// Sorts the rows by group, those of a group in ascending order.
class RowSorter {
 public:
  RowSorter(int64_t rows, int64_t groups, Workspace* memory)
      : rows_(rows), groups_(groups), start_(memory->Add<int64_t>(groups + 1)), order_(memory->Add<int64_t>(rows)) {}

  RowGroups Sort(const Args& args, const int64_t* ids) const {
    const RowGroups sorted{PartAt<int64_t>(args, start_), PartAt<int64_t>(args, order_)};
    const auto group = [&](int64_t i) {
      return std::clamp(ids[i] < 0 ? ids[i] + groups_ : ids[i], int64_t{0}, groups_ - 1);
    };
    std::fill_n(sorted.start, groups_ + 1, 0);
    for (int64_t i = 0; i < rows_; ++i) ++sorted.start[group(i) + 1];
    for (int64_t g = 0; g < groups_; ++g) sorted.start[g + 1] += sorted.start[g];
    for (int64_t i = 0; i < rows_; ++i) sorted.order[sorted.start[group(i)]++] = i;
    std::copy_backward(sorted.start, sorted.start + groups_, sorted.start + groups_ + 1);
    sorted.start[0] = 0;
    return sorted;
  }

 private:
  int64_t rows_, groups_;
  size_t start_, order_;
};

// Copies rows to their places in the order, as float32; each row of the tensor is read `repeats` times.
struct RowCopy {
  DType dtype;
  int64_t rows, width, repeats;

  void Gather(const void* from, const int64_t* order, float* to) const {
    Parallel(rows, width, [=, this](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) Read(from, order[i] / repeats, to + i * width);
    });
  }

  // Writes rows back to where the order took them from.
  void Scatter(const float* from, const int64_t* order, void* to) const {
    Parallel(rows, width, [=, this](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) Write(from + i * width, to, order[i]);
    });
  }

 private:
  void Read(const void* from, int64_t row, float* to) const {
    if (dtype == DType::kFloat32) {
      std::copy_n(static_cast<const float*>(from) + row * width, width, to);
    } else {
      BFloat16ToFloat({static_cast<const uint16_t*>(from) + row * width, size()}, {to, size()});
    }
  }
  void Write(const float* from, void* to, int64_t row) const {
    if (dtype == DType::kFloat32) {
      std::copy_n(from, width, static_cast<float*>(to) + row * width);
    } else {
      FloatToBFloat16({from, size()}, {static_cast<uint16_t*>(to) + row * width, size()});
    }
  }
  size_t size() const { return static_cast<size_t>(width); }
};

RowCopy MakeRowCopy(const Type& type, int64_t rows) {
  return {type.dtype, rows, type.shape[1], std::max<int64_t>(rows / std::max<int64_t>(type.shape[0], 1), 1)};
}

Kernel FillZeros(const KernelContext& c) {
  const size_t bytes = c.out().bytes();
  return {.run = [=](const Args& args) { std::fill_n(args.out<std::byte>(), bytes, std::byte{}); }};
}

}  // namespace

absl::StatusOr<Kernel> PrepareGroupedMatMul(const KernelContext& c) {
  const int64_t m = c.out().shape[0], n = c.out().shape[1], k = c.in(kGroupedX).shape[1];
  if (m == 0 || n == 0 || k == 0) return FillZeros(c);
  const bool transposed = c.attrs().Int("transposed") != 0;
  const int64_t groups = c.attrs().Int("groups"), rows = transposed ? n : k;
  const auto [step, most] = TileMultiplier::PanelsOf(transposed);
  const int64_t columns = std::min(most, n), panels = (n + columns - 1) / columns;
  ASSIGN_OR_RETURN(const RowReader<float> reader, RowReader<float>::Create(c, kGroupedMatrix));
  const TileMultiplier tiles(reader, k, n, columns, transposed);
  const RowCopy x_rows = MakeRowCopy(c.in(kGroupedX), m), y_rows = MakeRowCopy(c.out(), m);
  Workspace memory;
  const RowSorter sorter(m, groups, &memory);
  const size_t x_at = memory.Add<float>(m * k), y_at = memory.Add<float>(m * n), each = tiles.scratch_bytes(),
               tiles_at = memory.Add<std::byte>(static_cast<int64_t>(each) * omp_get_max_threads());
  const int64_t cost = std::max<int64_t>(m / groups, 1) * columns * k;
  return Kernel{.run =
                    [=](const Args& args) {
                      const RowGroups sorted = sorter.Sort(args, args.in<int64_t>(kGroupedIds));
                      float *x = PartAt<float>(args, x_at), *y = PartAt<float>(args, y_at);
                      x_rows.Gather(args.in<void>(kGroupedX), sorted.order, x);
                      const auto in = tiles.reader().TakeOperands(args);
                      Parallel(groups * panels, cost, [&](int64_t begin, int64_t end) {
                        auto* scratch = PartAt<std::byte>(args, tiles_at) + omp_get_thread_num() * each;
                        for (int64_t i = begin; i < end; ++i) {
                          const int64_t group = i / panels, column = i % panels * columns, first = sorted.start[group];
                          if (const int64_t count = sorted.start[group + 1] - first; count > 0)
                            tiles.Multiply(in,
                                           {.x = x + first * k,
                                            .y = y + first * n,
                                            .rows = count,
                                            .column = column,
                                            .columns = std::min(columns, n - column),
                                            .matrix_row = group * rows},
                                           scratch);
                        }
                      });
                      y_rows.Scatter(y, sorted.order, args.out<void>());
                    },
                .workspace = memory.size()};
}

absl::StatusOr<Kernel> PrepareGroupedMatMulWeightGrad(const KernelContext& c) {
  const int64_t m = c.in(2).shape[0], groups = c.attrs().Int("groups");
  const RowCopy a_rows = MakeRowCopy(c.in(0), m), b_rows = MakeRowCopy(c.in(1), m);
  const int64_t p = a_rows.width, q = b_rows.width;
  if (m == 0 || c.out().elements() == 0) return FillZeros(c);
  Workspace memory;
  const RowSorter sorter(m, groups, &memory);
  const size_t a_at = memory.Add<float>(m * p), b_at = memory.Add<float>(m * q);
  return Kernel{.run =
                    [=](const Args& args) {
                      const RowGroups sorted = sorter.Sort(args, args.in<int64_t>(2));
                      float *a = PartAt<float>(args, a_at), *b = PartAt<float>(args, b_at);
                      a_rows.Gather(args.in<void>(0), sorted.order, a);
                      b_rows.Gather(args.in<void>(1), sorted.order, b);
                      for (int64_t g = 0; g < groups; ++g) {
                        const int64_t first = sorted.start[g], count = sorted.start[g + 1] - first;
                        float* dw = args.out() + g * p * q;
                        if (count == 0) {
                          std::fill_n(dw, p * q, 0.0F);
                        } else {
                          dnnl_sgemm('T', 'N', p, q, count, 1, a + first * p, p, b + first * q, q, 0, dw, q);
                        }
                      }
                    },
                .workspace = memory.size()};
}

bool AcceptsGroupedProduct(const KernelContext& c) {
  return IsStoredForKernels(c.in(2)) && (c.in().dtype == DType::kFloat32 || c.in().dtype == DType::kBFloat16);
}

}  // namespace onnxtrain::cpu
