// Scatters, one place along the axis after the other, and TopK.
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>

#include "reference.h"

namespace onnxtrain::cases {
namespace {

at::Tensor Reduced(const std::string& reduction, const at::Tensor& old, const at::Tensor& update) {
  if (reduction == "add") return old + update;
  if (reduction == "mul") return old * update;
  if (reduction == "max") return at::maximum(old, update);
  if (reduction == "min") return at::minimum(old, update);
  return update;
}

TensorVector Scatter(const Operands& a) {
  const int64_t axis = a.attrs().Int("axis"), n = a[0].size(axis);
  const at::Tensor index = at::where(a[1].lt(0), a[1] + n, a[1]).clamp(0, n - 1);
  at::Tensor y = a[0] + a[2].sum() * 0;  // so that both have gradients where nothing is written
  for (int64_t j = 0; j < index.size(axis); ++j) {
    const at::Tensor places = index.narrow(axis, j, 1), updates = a[2].narrow(axis, j, 1);
    y = y.scatter(axis, places, Reduced(a.attrs().String("reduction", "none"), y.gather(axis, places), updates));
  }
  return {y};
}

TensorVector TopK(const Operands& a) {
  const int64_t axis = a.attrs().Int("axis"), k = a.attrs().Int("k");
  return {std::get<0>(at::sort(a[0], axis, a.attrs().Int("largest") != 0)).narrow(axis, 0, k)};
}

}  // namespace

References ScatterReferences() { return {{"ScatterElements", Scatter}, {"TopK", TopK}}; }

}  // namespace onnxtrain::cases
