#include "backends/torch/kernels/scatter.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include "backends/torch/compat.h"
#include "backends/torch/kernel.h"
#include "backends/torch/tensor.h"

namespace onnxtrain::aten {

// Clamps indices out of range, because they come from user data and must not access other memory.
at::Tensor SafeIndex(const at::Tensor& index, int64_t n) {
  const at::Tensor wide = index.to(at::kLong);
  return at::where(wide.lt(0), wide + n, wide).clamp_(0, n - 1);
}

namespace {

// Returns the sizes of `whole`, with the axis as long as the index.
std::vector<int64_t> SelectedSizes(const at::Tensor& whole, int64_t axis, const at::Tensor& index) {
  std::vector<int64_t> sizes = whole.sizes().vec();
  sizes[axis] = index.numel();
  return sizes;
}

Run Gather(const Args& a) {
  const int64_t axis = a.attrs().Int("axis"), n = a.in[0].size(axis);
  return [=, y = a.out[0].view(SelectedSizes(a.in[0], axis, a.in[1])), x = a.in[0],
          index = a.in[1].flatten()]() mutable { at::index_select_out(y, x, axis, SafeIndex(index, n)); };
}

Run GatherGrad(const Args& a) {
  const int64_t axis = a.attrs().Int("axis"), n = a.out[0].size(axis);
  const at::Tensor dy = a.in[0].view(SelectedSizes(a.out[0], axis, a.in[1]));
  return [=, index = a.in[1].flatten(), dx = a.out[0]] {
    dx.zero_();
    dx.index_add_(axis, SafeIndex(index, n), dy);
  };
}

Run GatherElements(const Args& a) {
  const int64_t axis = a.attrs().Int("axis"), n = a.in[0].size(axis);
  return [=, x = a.in[0], index = a.in[1], y = a.out[0]]() mutable { at::gather_out(y, x, axis, SafeIndex(index, n)); };
}

Run GatherElementsGrad(const Args& a) {
  const int64_t axis = a.attrs().Int("axis"), n = a.out[0].size(axis);
  return [=, dy = a.in[0], index = a.in[1], dx = a.out[0]] {
    dx.zero_();
    dx.scatter_add_(axis, SafeIndex(index, n), dy);
  };
}

}  // namespace

std::span<const NamedKernel> IndexKernels() {
  static constexpr NamedKernel kKernels[] = {
      {"Gather", {Gather, Types::kAny}},
      {"GatherGrad", {GatherGrad, Types::kNumber}},
      {"GatherElements", {GatherElements, Types::kAny}},
      {"GatherElementsGrad", {GatherElementsGrad, Types::kNumber}},
  };
  return kKernels;
}

namespace {

// Flips the highest bit of unsigned integers, which are stored as signed, so that their signed order is the unsigned
// one.
class Ordered {
 public:
  explicit Ordered(const Args& a) : carried_(IsStoredAsSigned(a.graph.type(a.node.inputs[0]).dtype)) {}

  at::Tensor operator()(const at::Tensor& x) const {
    if (!carried_) return x;
    const int64_t highest = static_cast<int64_t>(uint64_t{1} << (8 * x.element_size() - 1));
    return at::bitwise_xor(x, at::full({}, highest, x.options().dtype(at::kLong)).to(x.scalar_type()));
  }

 private:
  bool carried_;
};

// Makes a first call of scatter_reduce_, which warns that its API may change, with the warning suppressed.
void TakeWarning() {
  static const bool taken = [] {
    SilentHandler silent;
    const WarningGuard guard(&silent);
    at::zeros({1}).scatter_reduce_(0, at::zeros({1}, at::kLong), at::zeros({1}), "sum");
    return true;
  }();
  static_cast<void>(taken);
}

void ReduceInto(const at::Tensor& y, int64_t axis, const at::Tensor& index, const at::Tensor& updates,
                const char* reduce) {
  y.scatter_reduce_(axis, index, updates, reduce, /*include_self=*/true);
}

// Returns the updates, where updates of the same element are all replaced by the last one along the axis, so that the
// order of writes does not matter.
at::Tensor KeepLastUpdate(const at::Tensor& x, int64_t axis, const at::Tensor& index, const at::Tensor& updates) {
  std::vector<int64_t> along(index.dim(), 1);
  along[axis] = index.size(axis);
  const at::Tensor places = at::arange(index.size(axis), index.options()).view(along).expand(index.sizes());
  at::Tensor last = at::full(x.sizes(), -1, index.options());
  ReduceInto(last, axis, index, places, "amax");
  return updates.gather(axis, last.gather(axis, index));
}

Run Write(const Args& a) {
  const int64_t axis = a.attrs().Int("axis");
  return [=, x = a.in[0], index = a.in[1], updates = a.in[2], y = a.out[0]] {
    const at::Tensor safe = SafeIndex(index, x.size(axis));
    const at::Tensor written = x.is_cuda() ? KeepLastUpdate(x, axis, safe, updates) : updates;
    y.copy_(x);
    y.scatter_(axis, safe, written);
  };
}

template <const char* kReduce, bool kOrders>
Run Reduce(const Args& a) {
  const int64_t axis = a.attrs().Int("axis");
  const Ordered ordered(a);
  return [=, x = a.in[0], index = a.in[1], updates = a.in[2], y = a.out[0]] {
    const at::Tensor safe = SafeIndex(index, x.size(axis));
    if (!kOrders) {
      y.copy_(x);
      ReduceInto(y, axis, safe, updates, kReduce);
    } else {
      const at::Tensor sorted = ordered(x).clone();
      ReduceInto(sorted, axis, safe, ordered(updates), kReduce);
      y.copy_(ordered(sorted));
    }
  };
}

constexpr char kSum[] = "sum", kProd[] = "prod", kMax[] = "amax", kMin[] = "amin";

Run Scatter(const Args& a) {
  const std::string reduction = a.attrs().String("reduction");
  TakeWarning();
  if (a.in[1].numel() == 0) return [x = a.in[0], y = a.out[0]] { y.copy_(x); };
  if (reduction == "add") return Reduce<kSum, false>(a);
  if (reduction == "mul") return Reduce<kProd, false>(a);
  if (reduction == "max") return Reduce<kMax, true>(a);
  if (reduction == "min") return Reduce<kMin, true>(a);
  return Write(a);
}

// Uses a stable sort, which keeps equal elements in order of their index; at::topk does not guarantee this.
Run TopK(const Args& a) {
  const int64_t axis = a.attrs().Int("axis"), k = a.attrs().Int("k");
  const bool largest = a.attrs().Int("largest") != 0;
  const Ordered ordered(a);
  return [=, x = a.in[0], values = a.Out(0), places = a.Out(1)] {
    const auto sorted = at::sort(ordered(x), /*stable=*/true, axis, /*descending=*/largest);
    values.copy_(ordered(std::get<0>(sorted).narrow(axis, 0, k)));
    places.copy_(std::get<1>(sorted).narrow(axis, 0, k));
  };
}

constexpr NamedKernel kScatter[] = {{"ScatterElements", {Scatter, Types::kAny}}};
constexpr NamedKernel kTopK[] = {{"TopK", {TopK, Types::kAny}}};

}  // namespace

std::span<const NamedKernel> ScatterKernels() { return kScatter; }
std::span<const NamedKernel> TopKKernels() { return kTopK; }

}  // namespace onnxtrain::aten
