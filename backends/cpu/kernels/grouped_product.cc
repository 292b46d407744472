// Multiplies each row by one of several matrices: rows of one matrix are copied next to each other, multiplied
// together, and the results are copied back.
#include "backends/cpu/kernels/grouped_product.h"

#include <algorithm>
#include <span>
#include <vector>

#include "backends/cpu/kernels/dequantized_tiles.h"
#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/kernels/row_groups.h"
#include "frontend/base/status.h"
#include "frontend/ops/grouped_product.h"

namespace onnxtrain::cpu {
namespace {

// y [m, n] of rows x [m, k] that were brought next to each other by group.
struct GroupedProduct {
  int64_t m, k, n, groups;
  bool transposed;

  int64_t matrix_rows() const { return transposed ? n : k; }  // of a stored matrix
};

// Returns the kernel that multiplies float32 rows by dequantized tiles.
Kernel MakeFloatProduct(const KernelContext& c, const RowReader<float>& reader, const GroupedProduct& p) {
  const int64_t m = p.m, k = p.k, n = p.n, groups = p.groups, matrix_rows = p.matrix_rows();
  const int64_t columns = std::min(TileMultiplier::PanelsOf(p.transposed).most, n),
                panels = (n + columns - 1) / columns;
  const TileMultiplier tiles(reader, k, n, columns, p.transposed);
  const RowCopy x_rows = MakeRowCopy(c.in(kGroupedX), m), y_rows = MakeRowCopy(c.out(), m);
  Workspace memory;
  const RowSorter sorter(m, groups, &memory);
  const int64_t most = std::min(m, kRowsAtOnce);
  const size_t x_at = memory.Add<float>(most * k), y_at = memory.Add<float>(most * n), each = tiles.scratch_bytes(),
               tiles_at = memory.Add<std::byte>(static_cast<int64_t>(each) * omp_get_max_threads());
  const auto run = [=](const Args& args) {
    const RowGroups sorted = sorter.Sort(args, args.in<int64_t>(kGroupedIds));
    float *x = PartAt<float>(args, x_at), *y = PartAt<float>(args, y_at);
    const auto in = tiles.reader().TakeOperands(args);
    ForRowsAtOnce(0, m, [&](int64_t first, int64_t count) {
      x_rows.Gather(args.in<void>(kGroupedX), sorted.order + first, count, x);
      const int64_t* const ends = sorted.start + 1;
      const int64_t group = std::upper_bound(ends, ends + groups, first) - ends,
                    last = std::lower_bound(ends, ends + groups, first + count) - ends, some = last + 1 - group;
      Parallel(some * panels, count / some * columns * k, [&](int64_t begin, int64_t end) {
        auto* scratch = PartAt<std::byte>(args, tiles_at) + omp_get_thread_num() * each;
        for (int64_t i = begin; i < end; ++i) {
          const int64_t g = group + i / panels, column = i % panels * columns;
          const int64_t row = std::max(sorted.start[g] - first, int64_t{0});
          const int64_t rows = std::min(sorted.start[g + 1] - first, count) - row;
          if (rows <= 0) continue;
          tiles.Multiply(in,
                         {.x = x + row * k,
                          .y = y + row * n,
                          .rows = rows,
                          .column = column,
                          .columns = std::min(columns, n - column),
                          .matrix_row = g * matrix_rows},
                         scratch);
        }
      });
      y_rows.Scatter(y, sorted.order + first, count, args.out<void>());
    });
  };
  return {.run = run, .workspace = memory.size()};
}

// Products of bf16 rows, a fixed number at a time, with a packed tile of `columns` columns. Rows beyond those of a
// group are multiplied for nothing.
class PackedTiles {
 public:
  // The stored tile has rows `stride` elements apart.
  PackedTiles(const GroupedProduct& p, int64_t columns, int64_t stride) : k_(p.k), columns_(columns) {
    const dnnl::memory::desc layout = *FindPackedLayout(kRowHeights[0], k_, columns, DType::kBFloat16);
    pack_ = FindPacking(layout, p.transposed, stride);
    packed_bytes_ = Aligned64(layout.get_size());
    for (const int64_t rows : kRowHeights) {
      const auto desc =
          MakeMatMulDesc({{rows, k_}, {k_, columns}, {rows, columns}, {k_, 1}, {}, {columns, 1}, rows, k_, columns},
                         layout, {.in = DType::kBFloat16, .out = DType::kBFloat16});
      calls_.push_back(MakeMatMulCall(desc, false));
      scratch_bytes_ = std::max(scratch_bytes_, Aligned64(desc.scratchpad_desc().get_size()));
    }
  }

  // Return the sizes of packed memory and of scratch memory, which holds a tile of y.
  size_t packed_bytes() const { return packed_bytes_; }
  size_t scratch_bytes() const { return tile_bytes() + scratch_bytes_; }

  void Pack(const float* tile, void* packed) const { pack_(tile, packed); }

  // Writes rows of y, [·, n] from `first` on, to where the order took those of x from.
  void Multiply(const uint16_t* x, const void* packed, std::span<const int64_t> order, uint16_t* y, int64_t n,
                std::byte* scratch) const {
    const auto rows = std::ssize(order);
    auto* tile = reinterpret_cast<uint16_t*>(scratch);
    for (int64_t i = 0; i < rows;) {
      const size_t height = FindHeight(rows - i);
      calls_[height].Run({x + i * k_, packed, tile, scratch + tile_bytes()});
      const int64_t count = std::min(kRowHeights[height], rows - i);
      for (int64_t r = 0; r < count; ++r) std::copy_n(tile + r * columns_, columns_, y + order[i + r] * n);
      i += count;
    }
  }

 private:
  size_t tile_bytes() const { return Aligned64(kRowHeights[0] * columns_ * sizeof(uint16_t)); }

  int64_t k_, columns_;
  PackMatrix pack_;
  std::vector<DnnlCall> calls_;  // by height
  size_t packed_bytes_, scratch_bytes_ = 0;
};

// Reads tiles of columns of the matrix of a group as float32.
struct GroupTile {
  RowReader<float> reader;
  GroupedProduct p;

  // Elements between the rows of a tile of `columns` columns.
  int64_t stride(int64_t columns) const { return p.transposed ? p.k : columns; }
  int64_t scratch(int64_t columns) const {
    return static_cast<int64_t>(RowReader<float>::ScratchBytes(stride(columns))) * omp_get_max_threads();
  }
  void Read(const Args& args, int64_t group, int64_t first, int64_t columns, float* tile, std::byte* scratch) const {
    const auto in = reader.TakeOperands(args);
    const int64_t segment = stride(columns), row = group * p.matrix_rows() + (p.transposed ? first : 0);
    Parallel(p.transposed ? columns : p.k, segment, [&](int64_t begin, int64_t end) {
      auto own = RowReader<float>::MakeScratch(scratch + omp_get_thread_num() * RowReader<float>::ScratchBytes(segment),
                                               segment);
      for (int64_t i = begin; i < end; ++i)
        reader.Read(in, row + i, p.transposed ? 0 : first, segment, &own, tile + i * segment);
    });
  }
};

// Returns the kernel of bf16 rows, by tiles of `width` columns that are packed for oneDNN.
Kernel MakePackedProduct(const KernelContext& c, const RowReader<float>& reader, const GroupedProduct& p,
                         int64_t width) {
  const int64_t last = p.n - (p.n - 1) / width * width, k = p.k, n = p.n, groups = p.groups;
  const GroupTile source{reader, p};
  const PackedTiles whole(p, width, source.stride(width)), rest(p, last, source.stride(last));
  const RowCopy x_rows = MakeRowCopy(c.in(kGroupedX), p.m);
  Workspace memory;
  const RowSorter sorter(p.m, groups, &memory);
  const auto bytes = [&](size_t a, size_t b) { return memory.Add<std::byte>(static_cast<int64_t>(std::max(a, b))); };
  const size_t x_at = memory.Add<uint16_t>((std::min(p.m, kRowsAtOnce) + kRowHeights[0]) * k),
               tile_at = memory.Add<float>(k * width), read_at = memory.Add<std::byte>(source.scratch(width)),
               packed_at = bytes(whole.packed_bytes(), rest.packed_bytes()),
               scratch_at = bytes(whole.scratch_bytes(), rest.scratch_bytes());
  const auto run = [=](const Args& args) {
    const RowGroups sorted = sorter.Sort(args, args.in<int64_t>(kGroupedIds));
    auto *x = PartAt<uint16_t>(args, x_at), *y = args.out<uint16_t>();
    auto* tile = PartAt<float>(args, tile_at);
    auto *packed = PartAt<std::byte>(args, packed_at), *scratch = PartAt<std::byte>(args, scratch_at);
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t begin = sorted.start[group];
      ForRowsAtOnce(begin, sorted.start[group + 1] - begin, [&](int64_t row, int64_t count) {
        const std::span order(sorted.order + row, static_cast<size_t>(count));
        x_rows.GatherPadded(args.in<uint16_t>(kGroupedX), order.data(), count, count, x);
        for (int64_t first = 0; first < n; first += width) {
          const int64_t columns = std::min(width, n - first);
          const PackedTiles& product = columns == width ? whole : rest;
          source.Read(args, group, first, columns, tile, PartAt<std::byte>(args, read_at));
          product.Pack(tile, packed);
          product.Multiply(x, packed, order, y + first, n, scratch);
        }
      });
    }
  };
  return {.run = run, .workspace = memory.size()};
}

constexpr int64_t kRowsToPack = 16;  // of an expert, so that packing its matrix pays

}  // namespace

absl::StatusOr<Kernel> PrepareGroupedMatMul(const KernelContext& c) {
  const GroupedProduct p{.m = c.out().shape[0],
                         .k = c.in(kGroupedX).shape[1],
                         .n = c.out().shape[1],
                         .groups = c.attrs().Int("groups"),
                         .transposed = c.attrs().Int("transposed") != 0};
  if (p.m == 0 || p.n == 0 || p.k == 0) return FillZeros(c);
  ASSIGN_OR_RETURN(const RowReader<float> reader, RowReader<float>::Create(c, kGroupedMatrix));
  const bool packs = c.in(kGroupedX).dtype == DType::kBFloat16 && HasBFloat16() && p.m >= kRowsToPack * p.groups;
  const int64_t width = packs ? FindTileWidth(kRowHeights[0], p.k, p.n, DType::kBFloat16) : 0;
  return width > 0 ? MakePackedProduct(c, reader, p, width) : MakeFloatProduct(c, reader, p);
}

bool AcceptsGroupedProduct(const KernelContext& c) {
  return IsStoredForKernels(c.in(2)) && (c.in().dtype == DType::kFloat32 || c.in().dtype == DType::kBFloat16);
}

}  // namespace onnxtrain::cpu
