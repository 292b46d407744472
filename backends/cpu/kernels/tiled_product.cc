#include "backends/cpu/kernels/tiled_product.h"

#include <algorithm>
#include <utility>

#include "backends/cpu/runtime/parallel.h"

namespace onnxtrain::cpu {
namespace {

// Computes one tile of y = a·w: packs columns of the weight and multiplies them. Writes the tile to scratch memory,
// since products write dense matrices only.
class TileProduct {
 public:
  TileProduct(const Product& p, const TileSource& source, int64_t columns, const Epilogue& e) {
    const dnnl::memory::desc layout = *FindPackedLayout(p.m, p.k, columns, e.in);
    product_ = MakeProductKernel(
        {{p.m, p.k}, {p.k, columns}, {p.m, columns}, {p.k, 1}, {columns, 1}, {columns, 1}, p.m, p.k, columns}, layout,
        e);
    pack_ = FindPacking(layout, source.transposed, source.stride);
    packed_bytes_ = Aligned64(layout.get_size());
  }

  size_t packed_bytes() const { return packed_bytes_; }
  size_t scratch_bytes() const { return Aligned64(product_.workspace); }

  void Run(const Args& args, const float* weight, void* bias, void* packed, void* y, void* scratch) const {
    pack_(weight, packed);
    void* inputs[] = {args.inputs[0], packed, bias};
    void* outputs[] = {y};
    product_.run(Args{.inputs = inputs, .outputs = outputs, .workspace = scratch});
  }

 private:
  Kernel product_;
  PackMatrix pack_;
  size_t packed_bytes_;
};

// Copies the columns of a tile to y, or adds them.
void StoreTile(const Args& args, const Product& p, Epilogue e, const std::byte* tile, int64_t first, int64_t columns) {
  const auto element = static_cast<int64_t>(DTypeSize(e.out));
  Parallel(p.m, columns, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const std::byte* from = tile + i * columns * element;
      const int64_t at = i * p.n + first;
      if (e.adds) {
        const auto* sums = reinterpret_cast<const float*>(from);
        for (int64_t j = 0; j < columns; ++j) args.out()[at + j] = args.in(3)[at + j] + sums[j];
      } else {
        std::copy_n(from, columns * element, args.out<std::byte>() + at * element);
      }
    }
  });
}

}  // namespace

Kernel MakeTiledProduct(const Product& p, Epilogue e, const TileSource& source) {
  const int64_t width = source.width, last = p.n - (p.n - 1) / width * width;
  const bool adds = std::exchange(e.adds, false);
  const TileProduct whole(p, source, width, e), rest(p, source, last, e);
  e.adds = adds;
  const size_t read = Aligned64(source.scratch), packed = std::max(whole.packed_bytes(), rest.packed_bytes());
  const size_t tile = Aligned64(p.m * width * DTypeSize(e.out));
  return {.run =
              [=](const Args& args) {
                auto* scratch = static_cast<std::byte*>(args.workspace);
                std::byte *const memory = scratch + read, *const y = memory + packed;
                for (int64_t j = 0; j < p.n; j += width) {
                  const int64_t columns = std::min(width, p.n - j);
                  const float* weight = source.read(args, j, columns, scratch);
                  auto* bias = e.bias ? static_cast<std::byte*>(args.inputs[2]) + j * DTypeSize(e.bias_type) : nullptr;
                  (columns == width ? whole : rest).Run(args, weight, bias, memory, y, y + tile);
                  StoreTile(args, p, e, y, j, columns);
                }
              },
          .workspace = read + packed + tile + std::max(whole.scratch_bytes(), rest.scratch_bytes())};
}

}  // namespace onnxtrain::cpu
