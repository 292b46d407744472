// Weights in the layouts that products read fastest.
#include <algorithm>

#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/kernels/reorder.h"
#include "backends/cpu/parallel.h"
#include "frontend/base/half.h"

namespace onnxtrain::cpu {

// `to` [pairs, width]: element (i, j) is the pair of bf16 nearest to x(2i, j) and x(2i+1, j). width and pairs are multiples of 16.
struct PackLeaf {
  void (*rows)(const float* x, int64_t row, int64_t pairs, int64_t width, uint32_t* to);        // x(i, j) = x[i·row + j]
  void (*columns)(const float* x, int64_t column, int64_t pairs, int64_t width, uint32_t* to);  // x(i, j) = x[i + j·column]
};

}  // namespace onnxtrain::cpu

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/pack.leaf.inc"
#include "hwy/foreach_target.h"
#include "backends/cpu/kernels/pack.leaf.inc"

namespace onnxtrain::cpu {

HWY_EXPORT(PackTable);
namespace {

const PackLeaf& Leaf() { return HWY_DYNAMIC_DISPATCH(PackTable)(); }

// The layout of products of bf16: blocks of 32 × `width` elements, in each of them pairs of neighbouring rows side by side.
struct PairBlocks {
  static constexpr int64_t kPairs = 16;
  int64_t k, n, width;            // of the matrix; of a block
  int64_t row_step, column_step;  // from a block to the next one, in elements

  int64_t down() const { return (k + 2 * kPairs - 1) / (2 * kPairs); }
  int64_t across() const { return (n + width - 1) / width; }
};

std::optional<PairBlocks> PairBlocksOf(const dnnl::memory::desc& layout) {
  const dnnl_memory_desc_t& d = layout.data;
  const dnnl_blocking_desc_t& b = d.format_desc.blocking;
  const auto is = [&](int i, int64_t extent, int64_t axis) { return b.inner_blks[i] == extent && b.inner_idxs[i] == axis; };
  const bool pairs = d.data_type == dnnl_bf16 && d.ndims == 2 && d.offset0 == 0 && b.inner_nblks == 3 &&
                     is(0, PairBlocks::kPairs, 0) && b.inner_idxs[1] == 1 && b.inner_blks[1] % 16 == 0 && is(2, 2, 0);
  if (!pairs) return {};
  return PairBlocks{d.dims[0], d.dims[1], b.inner_blks[1], b.strides[0], b.strides[1]};
}

// A block at the rim; what lies beyond the matrix is zero.
void PackRim(const PairBlocks& b, const float* x, int64_t row, int64_t column, int64_t rows, int64_t columns, uint16_t* to) {
  std::fill_n(to, 2 * PairBlocks::kPairs * b.width, uint16_t{0});
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) to[(i / 2 * b.width + j) * 2 + i % 2] = FloatToBFloat16(x[i * row + j * column]);
  }
}

// Straight from float32. oneDNN's reorder from one type to the other takes several times as long.
Kernel PackPairs(const PairBlocks& b, bool transposed) {
  const int64_t row = transposed ? 1 : b.n, column = transposed ? b.k : 1;
  return {.run = [=](const Args& args) {
    Parallel(b.across() * b.down(), 2 * PairBlocks::kPairs * b.width, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t over = block / b.down(), down = block % b.down();
        const int64_t i = down * 2 * PairBlocks::kPairs, j = over * b.width;
        const int64_t rows = std::min(2 * PairBlocks::kPairs, b.k - i), columns = std::min(b.width, b.n - j);
        const float* x = args.in() + i * row + j * column;
        uint16_t* to = args.out<uint16_t>() + down * b.row_step + over * b.column_step;
        if (rows < 2 * PairBlocks::kPairs || columns < b.width) {
          PackRim(b, x, row, column, rows, columns, to);
        } else if (transposed) {
          Leaf().columns(x, column, PairBlocks::kPairs, b.width, reinterpret_cast<uint32_t*>(to));
        } else {
          Leaf().rows(x, row, PairBlocks::kPairs, b.width, reinterpret_cast<uint32_t*>(to));
        }
      }
    });
  }};
}

absl::StatusOr<Kernel> PreparePackWeight(const KernelContext& c) {
  const int64_t k = c.attrs().Int("k"), n = c.attrs().Int("n");
  const bool transposed = c.attrs().Int("trans") != 0;
  const auto layout = PackedLayout(c.attrs().Int("rows"), k, n, *DTypeOf(c.attrs().String("to")));
  if (!layout) return absl::InternalError("no packed layout for this weight");
  const auto pairs = PairBlocksOf(*layout);
  if (pairs && c.in().dtype == DType::kFloat32) return PackPairs(*pairs, transposed);
  return ReorderKernel(Plain({k, n}, transposed ? Shape{1, k} : Shape{n, 1}, c.in().dtype), *layout);
}

}  // namespace

std::span<const KernelRow> PackKernels() {
  static constexpr KernelRow kRows[] = {{"cpu.PackWeight", PreparePackWeight, kFloat | Only(DType::kBFloat16) | Only(DType::kUInt8)}};
  return kRows;
}

}  // namespace onnxtrain::cpu
