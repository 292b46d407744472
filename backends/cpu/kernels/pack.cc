// Packs weights into the blocked layouts of oneDNN's products.
#include <algorithm>
#include <type_traits>

#include "backends/cpu/kernels/conv.h"
#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/runtime/dnnl_call.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/base/small_float.h"

namespace onnxtrain::cpu {

// The rows of the weight in one packed element: a float has one, a pair of bf16 has two.
template <typename T>
inline constexpr int64_t kRowsIn = std::is_same_v<T, float> ? 1 : 2;

// Packs a block of x to `to` [height, width]; both extents are multiples of 16.
template <typename T>
struct PackBlockSimd {
  void (*rows)(const float* x, int64_t row, int64_t height, int64_t width, T* to);        // x(i, j) = x[i·row + j]
  void (*columns)(const float* x, int64_t column, int64_t height, int64_t width, T* to);  // x(i, j) = x[i + j·column]
};

struct PackSimd {
  PackBlockSimd<float> floats;
  PackBlockSimd<uint32_t> pairs;
};

}  // namespace onnxtrain::cpu

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/pack-inl.h"
#include "hwy/foreach_target.h"

#include "backends/cpu/kernels/pack-inl.h"

namespace onnxtrain::cpu {

HWY_EXPORT(PackTable);
namespace {

const PackSimd& Simd() { return HWY_DYNAMIC_DISPATCH(PackTable)(); }

// A layout of blocks of height × width elements T.
template <typename T>
struct Blocks {
  int64_t k, n, height, width;    // extents of the matrix; of a block
  int64_t row_step, column_step;  // strides of blocks, in elements

  int64_t rows() const { return kRowsIn<T> * height; }  // rows of the matrix in a block
  int64_t down() const { return (k + rows() - 1) / rows(); }
  int64_t across() const { return (n + width - 1) / width; }
};

template <typename T>
std::optional<Blocks<T>> GetBlocks(const dnnl::memory::desc& layout) {
  const dnnl_memory_desc_t& d = layout.data;
  const dnnl_blocking_desc_t& b = d.format_desc.blocking;
  constexpr bool kPairs = kRowsIn<T> == 2;
  const bool same = d.data_type == (kPairs ? dnnl_bf16 : dnnl_f32) && d.ndims == 2 && d.offset0 == 0 &&
                    b.inner_nblks == (kPairs ? 3 : 2) && b.inner_idxs[0] == 0 && b.inner_idxs[1] == 1 &&
                    b.inner_blks[0] % 16 == 0 && b.inner_blks[1] % 16 == 0 &&
                    (!kPairs || (b.inner_idxs[2] == 0 && b.inner_blks[2] == 2));
  if (!same) return {};
  return Blocks<T>{
      d.dims[0], d.dims[1], b.inner_blks[0], b.inner_blks[1], b.strides[0] / kRowsIn<T>, b.strides[1] / kRowsIn<T>};
}

void Put(float x, int64_t, float* to) { *to = x; }
void Put(float x, int64_t row, uint32_t* to) { *to |= uint32_t{FloatToBFloat16(x)} << (row % 2 * 16); }

// Packs a block at the border, padded with zeros.
template <typename T>
void PackRim(const Blocks<T>& b, const float* x, int64_t row, int64_t column, int64_t rows, int64_t columns, T* to) {
  std::fill_n(to, b.height * b.width, T{0});
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) Put(x[i * row + j * column], i, to + i / kRowsIn<T> * b.width + j);
  }
}

// Returns a function that packs from float32 in one pass along the contiguous axis. oneDNN's reorders take two to four
// times as long.
template <typename T>
PackMatrix PackBlocks(const Blocks<T>& b, bool transposed, int64_t stride, const PackBlockSimd<T>& simd) {
  const int64_t row = transposed ? 1 : stride, column = transposed ? stride : 1;
  const auto pack = transposed ? simd.columns : simd.rows;
  return [=](const float* matrix, void* packed) {
    Parallel(b.across() * b.down(), b.rows() * b.width, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t over = transposed ? block / b.down() : block % b.across(),
                      down = transposed ? block % b.down() : block / b.across();
        const int64_t i = down * b.rows(), j = over * b.width;
        const int64_t rows = std::min(b.rows(), b.k - i), columns = std::min(b.width, b.n - j);
        const float* x = matrix + i * row + j * column;
        T* to = static_cast<T*>(packed) + down * b.row_step + over * b.column_step;
        if (rows < b.rows() || columns < b.width) {
          PackRim(b, x, row, column, rows, columns, to);
        } else {
          pack(x, stride, b.height, b.width, to);
        }
      }
    });
  };
}

absl::StatusOr<Kernel> PreparePackWeight(const KernelContext& c) {
  const int64_t k = c.out().shape[0], n = c.out().shape[1];
  const bool transposed = c.attrs().Int("flipped") != 0;
  const auto layout = PackedWeightLayout(c.out(), 1, c.attrs().Ints("layout"));
  if (!layout) return absl::InternalError("no packed layout for this weight");
  if (c.in().dtype == DType::kFloat32) {
    if (PackMatrix pack = FindPacking(*layout, transposed, transposed ? k : n))
      return Kernel{.run = [pack = std::move(pack)](const Args& args) { pack(args.in(), args.outputs[0]); }};
  }
  const Reorder reorder = MakeReorder(Plain({k, n}, transposed ? Shape{1, k} : Shape{n, 1}, c.in().dtype), *layout);
  return Kernel{.run =
                    [call = reorder.call](const Args& args) {
                      call.Run({args.inputs[0], args.outputs[0], args.workspace});
                    },
                .workspace = reorder.scratch};
}

}  // namespace

PackMatrix FindPacking(const dnnl::memory::desc& layout, bool transposed, int64_t stride) {
  if (const auto floats = GetBlocks<float>(layout)) return PackBlocks(*floats, transposed, stride, Simd().floats);
  if (const auto pairs = GetBlocks<uint32_t>(layout)) return PackBlocks(*pairs, transposed, stride, Simd().pairs);
  return nullptr;
}

std::optional<PairBlocks> GetPairBlocks(const dnnl::memory::desc& layout) {
  const auto b = GetBlocks<uint32_t>(layout);
  if (!b) return {};
  return PairBlocks{b->height, b->width, b->row_step, b->column_step};
}

std::span<const KernelRow> PackKernels() {
  static constexpr KernelRow kRows[] = {{"cpu.PackWeight", PreparePackWeight, kFloat | Only(DType::kBFloat16),
                                         [](const KernelContext& c) { return c.in().rank() == 2; }}};
  return kRows;
}

}  // namespace onnxtrain::cpu
