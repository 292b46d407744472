// Sums the products aᵀ·b of the rows of each group.
#include <algorithm>
#include <utility>
#include <vector>

#include "backends/cpu/kernels/grouped_product.h"
#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/kernels/row_groups.h"

namespace onnxtrain::cpu {
namespace {

// The sums [groups, p, q] over m rows a [m, p] and b [m, q].
struct Sums {
  int64_t m, p, q, groups;
};

Kernel MakeFloatSums(const Sums& s, const RowCopy& a_rows, const RowCopy& b_rows) {
  const auto [m, p, q, groups] = s;
  Workspace memory;
  const RowSorter sorter(m, groups, &memory);
  const int64_t most = std::min(m, kRowsAtOnce);
  const size_t a_at = memory.Add<float>(most * p), b_at = memory.Add<float>(most * q);
  const auto run = [=, p = p, q = q, groups = groups](const Args& args) {
    const RowGroups sorted = sorter.Sort(args, args.in<int64_t>(2));
    float *a = PartAt<float>(args, a_at), *b = PartAt<float>(args, b_at);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t begin = sorted.start[g], rows = sorted.start[g + 1] - begin;
      float* sum = args.out() + g * p * q;
      if (rows == 0) std::fill_n(sum, p * q, 0.0F);
      ForRowsAtOnce(begin, rows, [&](int64_t first, int64_t count) {
        a_rows.Gather(args.in<void>(0), sorted.order + first, count, a);
        b_rows.Gather(args.in<void>(1), sorted.order + first, count, b);
        dnnl_sgemm('T', 'N', p, q, count, 1, a, p, b, q, first == begin ? 0 : 1, sum, q);
      });
    }
  };
  return {.run = run, .workspace = memory.size()};
}

// The products of a fixed number of bf16 rows, added to a sum or written.
class RowSums {
 public:
  explicit RowSums(const Sums& s) : p_(s.p), q_(s.q) {
    for (const bool adds : {false, true}) {
      for (const int64_t rows : kRowHeights) {
        const Product p{{s.p, rows}, {rows, s.q}, {s.p, s.q}, {1, s.p}, {s.q, 1}, {s.q, 1}, s.p, rows, s.q};
        const Epilogue e{.adds = adds, .in = DType::kBFloat16};
        const auto desc = MakeMatMulDesc(p, Plain(p.b, p.b_strides, e.in), e);
        fast_ = fast_ && !IsReference(desc) && (!adds || Accumulates(p, e, desc));
        calls_.push_back(MakeMatMulCall(desc, false));
        scratch_bytes_ = std::max(scratch_bytes_, desc.scratchpad_desc().get_size());
      }
    }
  }

  // True if oneDNN has fast kernels that add.
  bool is_fast() const { return fast_; }
  size_t scratch_bytes() const { return scratch_bytes_; }

  // Adds the products of `rows` rows, a multiple of the least height, or writes them.
  void Add(bool adds, int64_t rows, const uint16_t* a, const uint16_t* b, float* sum, std::byte* scratch) const {
    for (int64_t i = 0; i < rows;) {
      size_t height = FindHeight(rows - i);
      if (kRowHeights[height] > rows - i) ++height;  // no rows beyond these
      calls_[height + (adds || i > 0 ? kRowHeights.size() : 0)].Run({a + i * p_, b + i * q_, sum, scratch});
      i += kRowHeights[height];
    }
  }

 private:
  int64_t p_, q_;
  std::vector<DnnlCall> calls_;  // by height; then those that add
  size_t scratch_bytes_ = 0;
  bool fast_ = true;
};

// Rows are followed by rows of zeros up to a multiple of the least height.
Kernel MakeLowSums(const Sums& s, const RowSums& sums, const RowCopy& a_rows, const RowCopy& b_rows) {
  const auto [m, p, q, groups] = s;
  constexpr int64_t kStep = kRowHeights.back();
  Workspace memory;
  const RowSorter sorter(m, groups, &memory);
  const int64_t most = (std::min(m, kRowsAtOnce) + kStep - 1) / kStep * kStep;
  const size_t a_at = memory.Add<uint16_t>(most * p), b_at = memory.Add<uint16_t>(most * q),
               scratch_at = memory.Add<std::byte>(static_cast<int64_t>(sums.scratch_bytes()));
  const auto run = [=, p = p, q = q, groups = groups](const Args& args) {
    const RowGroups sorted = sorter.Sort(args, args.in<int64_t>(2));
    auto *a = PartAt<uint16_t>(args, a_at), *b = PartAt<uint16_t>(args, b_at);
    auto* scratch = PartAt<std::byte>(args, scratch_at);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t begin = sorted.start[g], rows = sorted.start[g + 1] - begin;
      float* sum = args.out() + g * p * q;
      if (rows == 0) std::fill_n(sum, p * q, 0.0F);
      ForRowsAtOnce(begin, rows, [&](int64_t first, int64_t count) {
        const int64_t padded = (count + kStep - 1) / kStep * kStep;
        a_rows.GatherPadded(args.in<uint16_t>(0), sorted.order + first, count, padded, a);
        b_rows.GatherPadded(args.in<uint16_t>(1), sorted.order + first, count, padded, b);
        sums.Add(first > begin, padded, a, b, sum, scratch);
      });
    }
  };
  return {.run = run, .workspace = memory.size()};
}

}  // namespace

absl::StatusOr<Kernel> PrepareGroupedMatMulWeightGrad(const KernelContext& c) {
  const int64_t m = c.in(2).shape[0];
  const RowCopy a_rows = MakeRowCopy(c.in(0), m), b_rows = MakeRowCopy(c.in(1), m);
  const Sums s{m, a_rows.width, b_rows.width, c.attrs().Int("groups")};
  if (m == 0 || c.out().elements() == 0) return FillZeros(c);
  if (a_rows.dtype == DType::kBFloat16 && HasBFloat16()) {
    const RowSums sums(s);
    if (sums.is_fast()) return MakeLowSums(s, sums, a_rows, b_rows);
  }
  return MakeFloatSums(s, a_rows, b_rows);
}

}  // namespace onnxtrain::cpu
