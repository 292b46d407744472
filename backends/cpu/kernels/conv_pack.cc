// Packs weights into the blocked layouts of convolutions.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "backends/cpu/kernels/conv.h"
#include "backends/cpu/kernels/typed.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"

namespace onnxtrain::cpu {
namespace {

using Offsets = std::vector<int64_t>;

// Returns the offsets along an axis of a blocked layout; the offset of an element is the sum over its axes.
Offsets OffsetsAlong(const dnnl::memory::desc& layout, int axis) {
  const dnnl_blocking_desc_t& b = layout.data.format_desc.blocking;
  Offsets offsets;
  for (int64_t i = 0; i < layout.data.dims[axis]; ++i) {
    int64_t rest = i, at = 0, step = 1;
    for (int block = b.inner_nblks; block-- > 0; step *= b.inner_blks[block]) {
      if (b.inner_idxs[block] != axis) continue;
      at += rest % b.inner_blks[block] * step;
      rest /= b.inner_blks[block];
    }
    offsets.push_back(at + rest * b.strides[axis]);
  }
  return offsets;
}

// The offsets of weights [groups, rows, columns, window].
struct ConvPacking {
  Offsets groups, rows, columns, window;

  int64_t of_group() const { return static_cast<int64_t>(rows.size() * columns.size() * window.size()); }
};

// Returns the packing of weights [g,]M,C,…. If `flipped`, the layout is that of [C,M,…] with the window reversed.
ConvPacking MakeConvPacking(const dnnl::memory::desc& layout, bool grouped, bool flipped) {
  const int rows = grouped ? 1 : 0;
  ConvPacking p = {.groups = grouped ? OffsetsAlong(layout, 0) : Offsets{0},
                   .rows = OffsetsAlong(layout, rows),
                   .columns = OffsetsAlong(layout, rows + 1),
                   .window = {0}};
  for (int axis = rows + 2; axis < layout.data.ndims; ++axis) {
    Offsets all;
    for (int64_t outer : p.window) {
      for (int64_t inner : OffsetsAlong(layout, axis)) all.push_back(outer + inner);
    }
    p.window = std::move(all);
  }
  if (flipped) {
    std::swap(p.rows, p.columns);
    std::reverse(p.window.begin(), p.window.end());
  }
  return p;
}

// Rows and columns of a block, which stays in the first-level cache whichever of the two is contiguous.
constexpr int64_t kBlock = 16;

template <typename T>
void PackBlock(const ConvPacking& p, int64_t row, int64_t column, const T* w, T* to) {
  const auto rows = static_cast<int64_t>(p.rows.size()), columns = static_cast<int64_t>(p.columns.size()),
             window = static_cast<int64_t>(p.window.size());
  for (int64_t r = row; r < std::min(row + kBlock, rows); ++r) {
    for (int64_t c = column; c < std::min(column + kBlock, columns); ++c) {
      const T* from = w + (r * columns + c) * window;
      T* at = to + p.rows[r] + p.columns[c];
      for (int64_t k = 0; k < window; ++k) at[p.window[k]] = from[k];
    }
  }
}

template <typename T>
Kernel PackBy(ConvPacking packing, size_t bytes) {
  const int64_t down = (packing.rows.size() + kBlock - 1) / kBlock,
                across = (packing.columns.size() + kBlock - 1) / kBlock;
  const auto groups = static_cast<int64_t>(packing.groups.size());
  const bool padded = bytes > groups * packing.of_group() * sizeof(T);
  const auto p = std::make_shared<const ConvPacking>(std::move(packing));
  return {.run = [=](const Args& args) {
    if (padded) std::memset(args.out<char>(), 0, bytes);
    Parallel(groups * down * across, kBlock * kBlock * static_cast<int64_t>(p->window.size()),
             [&](int64_t begin, int64_t end) {
               for (int64_t i = begin; i < end; ++i) {
                 const int64_t group = i / (down * across), row = i / across % down * kBlock,
                               column = i % across * kBlock;
                 PackBlock(*p, row, column, args.in<T>() + group * p->of_group(), args.out<T>() + p->groups[group]);
               }
             });
  }};
}

absl::StatusOr<Kernel> PreparePackConvWeight(const KernelContext& c) {
  const int64_t group = c.attrs().Int("group");
  const bool flipped = c.attrs().Int("flipped") != 0;
  const auto layout = PackedWeightLayout(flipped ? FlippedWeights(c.in()) : c.in(), group, c.attrs().Ints("layout"));
  if (!layout) return absl::InternalError("no layout of these weights");
  ConvPacking packing = MakeConvPacking(*layout, group > 1, flipped);
  return ForFloat(c.in().dtype, [&]<typename T>(T) { return PackBy<T>(std::move(packing), layout->get_size()); });
}

}  // namespace

std::span<const KernelRow> ConvPackKernels() {
  static constexpr KernelRow kRows[] = {
      {"cpu.PackWeight", PreparePackConvWeight, kFloat | Only(DType::kBFloat16),
       [](const KernelContext& c) { return c.in().rank() > 2 && c.in().dtype == c.out().dtype; }}};
  return kRows;
}

}  // namespace onnxtrain::cpu
