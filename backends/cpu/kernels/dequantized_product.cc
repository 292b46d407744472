// Multiplies by quantized matrices, which are dequantized tile by tile (dequantized_tiles.h). If x is bf16, oneDNN
// multiplies by tiles (tiled_product.h); if x has few rows, numbers become floats in registers (dequantized_gemv.cc).
#include <algorithm>
#include <vector>

#include "backends/cpu/kernels/dequantize.h"
#include "backends/cpu/kernels/dequantized_tiles.h"
#include "backends/cpu/kernels/tiled_product.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/base/small_float.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {

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
  const int64_t rows = parts == 0 ? p.m : RoundUp((p.m + parts - 1) / parts, TileMultiplier::kRowStep);
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

int64_t FindWidest(const std::vector<Item>& items) {
  int64_t columns = 0;
  for (const Item& item : items) columns = std::max(columns, item.columns);
  return columns;
}

// Returns the kernel of y [m, n] = x [m, k]·W or x·Wᵀ. The order of sums does not depend on the number of threads.
Kernel MakeDequantizedProduct(const RowReader<float>& reader, const Product& p, bool transposed) {
  const auto [step, most] = TileMultiplier::PanelsOf(transposed);
  const std::vector<Item> items = Divide(p, step, most, omp_get_max_threads());
  const int64_t columns = FindWidest(items), k = p.k, n = p.n, cost = columns * k * p.m;
  const TileMultiplier tiles(reader, k, n, columns, transposed);
  const size_t each = tiles.scratch_bytes();
  return {.run =
              [=](const Args& args) {
                const auto in = tiles.reader().TakeOperands(args);
                Parallel(std::ssize(items), cost, [&](int64_t begin, int64_t end) {
                  auto* memory = static_cast<std::byte*>(args.workspace) + omp_get_thread_num() * each;
                  for (int64_t i = begin; i < end; ++i) {
                    const auto [column, width, row, rows] = items[i];
                    tiles.Multiply(in, {args.in() + row * k, args.out() + row * n, rows, column, width}, memory);
                  }
                });
              },
          .workspace = each * omp_get_max_threads()};
}

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
// faster than MakeDequantizedProduct.
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
  ASSIGN_OR_RETURN(const RowReader<float> reader, RowReader<float>::Create(c, 1));
  const Epilogue e{.in = c.in().dtype, .out = c.in().dtype};
  const bool fast = bf16 && HasBFloat16() && p.m >= kRowsToTile;
  if (fast && transposed && IsPlainBf16(c, reader.matrix())) return MakePlainProduct(p, e);
  if (const int64_t width = fast ? FindTileWidth(p.m, p.k, p.n, e.in) : 0)
    return MakeTiledProduct(p, e, MakeTileSource(reader, p, width, transposed));
  if (transposed) {
    if (const std::optional<Kernel> kernel = MakeDequantizedGemv(reader, p.m))
      return bf16 ? ComputeInFloat32(*kernel, p) : *kernel;
  }
  const Kernel kernel = MakeDequantizedProduct(reader, p, transposed);
  return bf16 ? ComputeInFloat32(kernel, p) : kernel;
}

bool AcceptsMatMulDequantized(const KernelContext& c) {
  return IsStoredForKernels(c.in(1)) && (c.in().dtype == DType::kFloat32 || c.in().dtype == DType::kBFloat16);
}

}  // namespace onnxtrain::cpu
