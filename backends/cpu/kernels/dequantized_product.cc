// Multiplies by quantized matrices, which are dequantized tile by tile: no buffer has the size of the matrix. A thread
// converts a tile that fits its cache to float32 and multiplies all rows of x by it. If x is bf16, oneDNN multiplies by
// tiles (tiled_product.h); if x has few rows, numbers become floats in registers (dequantized_gemv.cc).
#include <algorithm>
#include <array>
#include <vector>

#include "backends/cpu/kernels/dequantize.h"
#include "backends/cpu/kernels/tiled_product.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/base/small_float.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {

// Operands of y = x·w or y += x·w over `depth` elements, for a fixed number of rows of x.
struct ProductTile {
  const float *x, *w;
  int64_t x_step, w_step, depth;  // strides of the rows of x and w
  float* y;
  int64_t y_step, columns;
  bool adds;
};

inline constexpr int kMaxTileRows = 6, kDotColumns = 4;
inline constexpr int64_t kPanelColumns = 64;

using TileFunctions = std::array<void (*)(const ProductTile&), kMaxTileRows>;  // for 1, 2 … rows of x

struct TileSimd {
  int dot_rows, sum_rows;  // rows of the largest tile
  TileFunctions dot;       // w [columns, depth], at most kDotColumns; reads kDotColumns rows of it
  TileFunctions sum;       // w [depth, kPanelColumns]; reads and writes kPanelColumns columns
};

}  // namespace onnxtrain::cpu

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/dequantized_product-inl.h"
#include "hwy/foreach_target.h"

#include "backends/cpu/kernels/dequantized_product-inl.h"

namespace onnxtrain::cpu {

HWY_EXPORT(TileTable);
namespace {

int64_t RoundUp(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// A part of y, which one thread computes.
struct Item {
  int64_t column, columns, row, rows;
};

constexpr int64_t kItemsPerThread = 2;  // of equal size at least

// Divides y [m, n] into items, in the order of `threads` shares of equal work: as many panels of `step` columns for
// each thread, at most `most` columns in an item, and a part of the rows of the panels that are left.
std::vector<Item> Divide(const Product& p, int64_t step, int64_t most, int64_t threads) {
  const int64_t panels = RoundUp(p.n, step) / step, each = panels / threads, left = panels % threads;
  const int64_t group = std::min(most / step, (each + kItemsPerThread - 1) / kItemsPerThread);
  const int64_t parts = left == 0 ? 0 : (threads + left - 1) / left;  // of the rows of a panel
  const int64_t rows = parts == 0 ? p.m : RoundUp((p.m + parts - 1) / parts, kMaxTileRows);
  std::vector<Item> items;
  const auto add = [&](int64_t panel, int64_t count, int64_t row, int64_t height) {
    const int64_t column = panel * step;
    items.push_back({column, std::min(count * step, p.n - column), row, height});
  };
  for (int64_t thread = 0; thread < threads; ++thread) {
    for (int64_t i = 0; i < each; i += group) add(thread * each + i, std::min(group, each - i), 0, p.m);
    for (int64_t i = thread; i < left * parts; i += threads) {
      const int64_t row = i % parts * rows;
      if (row < p.m) add(panels - left + i / parts, 1, row, std::min(rows, p.m - row));
    }
  }
  return items;
}

// Computes y [m, n] = x [m, k]·W or x·Wᵀ. The order of sums does not depend on the number of threads.
class DequantizedProduct {
 public:
  DequantizedProduct(RowReader<float> reader, const Product& p, bool transposed)
      : reader_(std::move(reader)), m_(p.m), k_(p.k), n_(p.n), transposed_(transposed) {
    const int64_t step = transposed ? kDotColumns : kPanelColumns, most = transposed ? kDotGroup : kSumGroup;
    items_ = Divide(p, step, most, omp_get_max_threads());
    for (const Item& item : items_) group_ = std::max(group_, RoundUp(item.columns, step));
    depth_ = transposed ? kDotDepth : kSumDepth;
    segment_ = transposed ? std::min(depth_, k_) : group_;
    tile_step_ = RoundUp(segment_, kPadding) + kPadding;
  }

  size_t workspace() const { return Each() * omp_get_max_threads(); }

  void Run(const Args& args) const {
    const auto in = reader_.TakeOperands(args);
    Parallel(static_cast<int64_t>(items_.size()), group_ * k_ * m_, [&](int64_t begin, int64_t end) {
      auto* memory = static_cast<std::byte*>(args.workspace) + omp_get_thread_num() * Each();
      for (int64_t i = begin; i < end; ++i)
        transposed_ ? MultiplyRows(args, in, items_[i], memory) : MultiplyColumns(args, in, items_[i], memory);
    });
  }

 private:
  using Reader = RowReader<float>;

  // Tiles have 256 KiB at most. Padding maps the rows of a tile to different cache sets.
  static constexpr int64_t kDotDepth = 1024, kDotGroup = 64, kSumDepth = 128, kSumGroup = 512, kPadding = 16;

  int64_t TileFloats() const { return (transposed_ ? group_ : depth_) * tile_step_; }
  int64_t EdgeFloats() const { return transposed_ ? 0 : kMaxTileRows * kPanelColumns; }
  size_t Each() const {
    return Aligned64((TileFloats() + EdgeFloats()) * sizeof(float)) + Reader::ScratchBytes(segment_);
  }
  Reader::Scratch MakeScratch(std::byte* memory) const {
    return Reader::MakeScratch(memory + Aligned64((TileFloats() + EdgeFloats()) * sizeof(float)), segment_);
  }

  // Computes an item of y = x·Wᵀ.
  void MultiplyRows(const Args& args, const Reader::Operands& in, const Item& item, std::byte* memory) const {
    auto* tile = reinterpret_cast<float*>(memory);
    auto scratch = MakeScratch(memory);
    const int64_t first = item.column, columns = item.columns, end = item.row + item.rows;
    for (int64_t k = 0; k < k_; k += depth_) {
      const int64_t depth = std::min(depth_, k_ - k);
      for (int64_t j = 0; j < columns; ++j) reader_.Read(in, first + j, k, depth, &scratch, tile + j * tile_step_);
      for (int64_t i = item.row; i < end; i += simd_.dot_rows) {
        for (int64_t j = 0; j < columns; j += kDotColumns) {
          const int64_t rows = std::min<int64_t>(simd_.dot_rows, end - i);
          simd_.dot[rows - 1]({.x = args.in() + i * k_ + k,
                               .w = tile + j * tile_step_,
                               .x_step = k_,
                               .w_step = tile_step_,
                               .depth = depth,
                               .y = args.out() + i * n_ + first + j,
                               .y_step = n_,
                               .columns = std::min<int64_t>(kDotColumns, columns - j),
                               .adds = k > 0});
        }
      }
    }
  }

  // Computes an item of y = x·W.
  void MultiplyColumns(const Args& args, const Reader::Operands& in, const Item& item, std::byte* memory) const {
    auto* tile = reinterpret_cast<float*>(memory);
    auto scratch = MakeScratch(memory);
    for (int64_t k = 0; k < k_; k += depth_) {
      const int64_t depth = std::min(depth_, k_ - k);
      for (int64_t i = 0; i < depth; ++i)
        reader_.Read(in, k + i, item.column, item.columns, &scratch, tile + i * tile_step_);
      for (int64_t j = 0; j < item.columns; j += kPanelColumns) {
        const Item panel{item.column + j, std::min(kPanelColumns, item.columns - j), item.row, item.rows};
        MultiplyPanel(args, panel, {k, depth}, tile + j, tile + TileFloats());
      }
    }
  }

  struct Range {
    int64_t begin, count;
  };

  void MultiplyPanel(const Args& args, const Item& item, Range k, const float* panel, float* edge) const {
    const bool whole = item.columns == kPanelColumns;
    const int64_t end = item.row + item.rows;
    for (int64_t i = item.row; i < end; i += simd_.sum_rows) {
      const int64_t rows = std::min<int64_t>(simd_.sum_rows, end - i);
      float* y = args.out() + i * n_ + item.column;
      simd_.sum[rows - 1]({.x = args.in() + i * k_ + k.begin,
                           .w = panel,
                           .x_step = k_,
                           .w_step = tile_step_,
                           .depth = k.count,
                           .y = whole ? y : edge,
                           .y_step = whole ? n_ : kPanelColumns,
                           .columns = kPanelColumns,
                           .adds = whole && k.begin > 0});
      if (!whole) StoreEdge(edge, rows, item.columns, k.begin > 0, y);
    }
  }

  void StoreEdge(const float* edge, int64_t rows, int64_t columns, bool adds, float* y) const {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) y[i * n_ + j] = edge[i * kPanelColumns + j] + (adds ? y[i * n_ + j] : 0.0f);
    }
  }

  const TileSimd& simd_ = HWY_DYNAMIC_DISPATCH(TileTable)();
  Reader reader_;
  int64_t m_, k_, n_;
  std::vector<Item> items_;
  int64_t group_ = 0, depth_ = 0;        // columns of a tile; elements of a sum per tile
  int64_t segment_ = 0, tile_step_ = 0;  // elements of a row dequantized at once; stride of the rows of a tile
  bool transposed_;
};

// Returns a source of dequantized tiles for oneDNN's products.
TileSource MakeTileSource(const RowReader<float>& reader, const Product& p, int64_t width, bool transposed) {
  const int64_t segment = transposed ? p.k : width;
  const size_t floats = Aligned64(p.k * width * sizeof(float)), each = RowReader<float>::ScratchBytes(segment);
  const auto read = [=](const Args& args, int64_t first, int64_t columns, std::byte* memory) {
    auto* tile = reinterpret_cast<float*>(memory);
    const auto in = reader.TakeOperands(args);
    Parallel(transposed ? columns : p.k, segment, [&](int64_t begin, int64_t end) {
      auto scratch = RowReader<float>::MakeScratch(memory + floats + omp_get_thread_num() * each, segment);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = transposed ? first + i : i, column = transposed ? 0 : first;
        reader.Read(in, row, column, transposed ? p.k : columns, &scratch, tile + i * segment);
      }
    });
    return tile;
  };
  return {.width = width,
          .transposed = transposed,
          .stride = segment,
          .scratch = floats + each * omp_get_max_threads(),
          .read = read};
}

// Returns true if the matrix holds bf16 without scales, which oneDNN's products can read.
bool IsPlainBf16(const KernelContext& c, const QuantizedMatrix& m) {
  const HostTensor* scale = c.graph.FindConstant(c.node.inputs[2]);
  const bool unscaled = scale != nullptr && scale->size() == 1 && scale->At(0) == 1 && !c.has(3) && m.zero == 0;
  return unscaled && c.in(1).dtype == DType::kBFloat16 && m.columns * 2 == m.row_bytes;
}

void Convert(const void* from, void* to, int64_t n, DType target) {
  Parallel(n, 1, [=](int64_t begin, int64_t end) {
    const auto size = static_cast<size_t>(end - begin);
    if (target == DType::kFloat32) {
      BFloat16ToFloat({static_cast<const uint16_t*>(from) + begin, size}, {static_cast<float*>(to) + begin, size});
    } else {
      FloatToBFloat16({static_cast<const float*>(from) + begin, size}, {static_cast<uint16_t*>(to) + begin, size});
    }
  });
}

// Returns a kernel that converts bf16 operands for a product of float32.
Kernel ComputeInFloat32(const Kernel& product, const Product& p) {
  const size_t x_bytes = Aligned64(p.m * p.k * sizeof(float)), y_bytes = Aligned64(p.m * p.n * sizeof(float));
  const auto run = [=, run = product.run](const Args& args) {
    auto* memory = static_cast<std::byte*>(args.workspace);
    void *x = memory, *y = memory + x_bytes;
    Convert(args.inputs[0], x, p.m * p.k, DType::kFloat32);
    void* const inputs[] = {x, args.inputs[1], args.inputs[2], args.inputs[3]};
    run({.inputs = inputs, .outputs = &y, .workspace = memory + x_bytes + y_bytes});
    Convert(y, args.outputs[0], p.m * p.n, DType::kBFloat16);
  };
  return {.run = run, .workspace = x_bytes + y_bytes + product.workspace};
}

// From this many rows of x on, oneDNN's products of bf16 repay packing dequantized tiles. Those of float32 are no
// faster than DequantizedProduct.
constexpr int64_t kRowsToTile = 64;

}  // namespace

absl::StatusOr<Kernel> PrepareMatMulDequantized(const KernelContext& c) {
  const int64_t size = c.out().elements(), k = c.in().shape.back(), n = c.out().shape.back();
  if (size == 0 || k == 0) {
    const size_t bytes = c.out().bytes();
    return Kernel{.run = [=](const Args& args) { std::fill_n(args.out<std::byte>(), bytes, std::byte{}); }};
  }
  const bool transposed = c.attrs().Int("transposed") != 0, bf16 = c.in().dtype == DType::kBFloat16;
  const Product p =
      MakeProduct({size / n, k}, transposed ? Shape{n, k} : Shape{k, n}, {size / n, n}, false, transposed);
  ASSIGN_OR_RETURN(RowReader<float> reader, RowReader<float>::Create(c, 1));
  const Epilogue e{.in = c.in().dtype, .out = c.in().dtype};
  const bool fast = bf16 && HasBFloat16() && p.m >= kRowsToTile;
  if (fast && transposed && IsPlainBf16(c, reader.matrix())) return MakePlainProduct(p, e);
  if (const int64_t width = fast ? FindTileWidth(p.m, p.k, p.n, e.in) : 0)
    return MakeTiledProduct(p, e, MakeTileSource(reader, p, width, transposed));
  if (transposed) {
    if (const std::optional<Kernel> kernel = MakeDequantizedGemv(reader, p.m))
      return bf16 ? ComputeInFloat32(*kernel, p) : *kernel;
  }
  const DequantizedProduct product(std::move(reader), p, transposed);
  Kernel kernel{.run = [product](const Args& args) { product.Run(args); }, .workspace = product.workspace()};
  return bf16 ? ComputeInFloat32(kernel, p) : kernel;
}

bool AcceptsMatMulDequantized(const KernelContext& c) {
  return c.in().dtype == DType::kFloat32 || c.in().dtype == DType::kBFloat16;
}

}  // namespace onnxtrain::cpu
