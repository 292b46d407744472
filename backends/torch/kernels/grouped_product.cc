// Multiplies each row by one of several matrices: rows of one matrix are gathered and multiplied together. The host
// reads how many rows each matrix has, so that a device waits once for each product and its kernels are not recorded.
#include <vector>

#include <ATen/ops/bincount.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sort.h>

#include "backends/torch/kernels/dequantize.h"
#include "frontend/ops/grouped_product.h"

namespace onnxtrain::aten {
namespace {

// The rows of each group.
struct RowGroups {
  at::Tensor order;             // row numbers, sorted by group
  std::vector<int64_t> counts;  // by group

  // Calls f(group, rows) for the groups that have rows.
  template <typename F>
  void ForEach(F&& f) const {
    int64_t first = 0;
    for (size_t g = 0; g < counts.size(); ++g) {
      if (counts[g] > 0) f(static_cast<int64_t>(g), order.narrow(0, first, counts[g]));
      first += counts[g];
    }
  }
};

RowGroups SortByGroup(const at::Tensor& ids, int64_t groups) {
  const at::Tensor group = (ids + ids.lt(0) * groups).clamp_(0, groups - 1);
  const at::Tensor counts = at::bincount(group, {}, groups).to(at::kCPU);
  const auto* count = counts.data_ptr<int64_t>();
  return {std::get<1>(at::sort(group, /*stable=*/true, /*dim=*/0, /*descending=*/false)), {count, count + groups}};
}

// Returns the rows of a tensor that has one row for each `repeats` indices.
at::Tensor SelectRepeated(const at::Tensor& x, const at::Tensor& rows, int64_t repeats) {
  return x.index_select(0, repeats == 1 ? rows : rows.floor_divide(repeats));
}

int64_t CountReads(const at::Tensor& x, const at::Tensor& ids) { return x.size(0) == 0 ? 1 : ids.size(0) / x.size(0); }

}  // namespace

Run PrepareGroupedMatMul(const Args& a) {
  const bool transposed = a.attrs().Int("transposed") != 0;
  const int64_t groups = a.attrs().Int("groups");
  const at::Tensor x = a.in[kGroupedX], ids = a.in[kGroupedIds];
  const at::ScalarType factors = x.is_cuda() ? x.scalar_type() : WideType(x);
  return [=, repeats = CountReads(x, ids), w = TakeStoredMatrix(a, kGroupedMatrix), y = a.out[0]] {
    const int64_t rows_of_group = w.matrix.rows / groups;
    y.zero_();
    SortByGroup(ids, groups).ForEach([&](int64_t group, const at::Tensor& rows) {
      const at::Tensor matrix =
          ComputeMatrix(SelectRows(w, group * rows_of_group, rows_of_group), WideType(x)).to(factors);
      const at::Tensor product =
          at::matmul(SelectRepeated(x, rows, repeats).to(factors), transposed ? matrix.t() : matrix);
      y.index_copy_(0, rows, product.to(y.scalar_type()));
    });
  };
}

Run PrepareGroupedMatMulWeightGrad(const Args& args) {
  const at::Tensor a = args.in[0], b = args.in[1], ids = args.in[2], y = args.out[0];
  const int64_t groups = args.attrs().Int("groups");
  const at::ScalarType factors = a.is_cuda() ? a.scalar_type() : WideType(a);
  return [=, of_a = CountReads(a, ids), of_b = CountReads(b, ids)] {
    const int64_t rows_of_group = y.size(0) / groups;
    y.zero_();
    SortByGroup(ids, groups).ForEach([&](int64_t group, const at::Tensor& rows) {
      const at::Tensor left = SelectRepeated(a, rows, of_a).to(factors), right = SelectRepeated(b, rows, of_b);
      y.narrow(0, group * rows_of_group, rows_of_group).copy_(at::matmul(left.t(), right.to(factors)));
    });
  };
}

}  // namespace onnxtrain::aten
