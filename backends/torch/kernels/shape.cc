// Operators that move elements.
#include <ATen/ops/cat.h>
#include <ATen/ops/flip.h>

#include "backends/torch/kernel.h"

namespace onnxtrain::aten {
namespace {

Run CopyInto(at::Tensor to, at::Tensor from) {
  return [=] { to.copy_(from); };
}

// Copies only if the memory plan gives the output a different place than its input.
Run Reshape(const Args& a) {
  if (a.in[0].data_ptr() == a.out[0].data_ptr()) return {};
  return CopyInto(a.out[0], a.in[0].view(a.out[0].sizes()));
}

Run Transpose(const Args& a) { return CopyInto(a.out[0], a.in[0].permute(a.attrs().Ints("perm"))); }

Run Expand(const Args& a) { return CopyInto(a.out[0], a.in[0].expand(a.out[0].sizes())); }

Run Concat(const Args& a) {
  return [y = a.out[0], parts = a.in, axis = a.attrs().Int("axis")]() mutable { at::cat_out(y, parts, axis); };
}

Run Split(const Args& a) {
  const int64_t axis = a.attrs().Int("axis");
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  int64_t start = 0;
  for (size_t i = 0; i < a.out.size(); ++i) {
    const int64_t size = a.graph.type(a.node.outputs[i]).shape[axis];
    if (a.out[i].defined()) copies.emplace_back(a.out[i], a.in[0].narrow(axis, start, size));
    start += size;
  }
  return [copies] {
    for (const auto& [to, from] : copies) to.copy_(from);
  };
}

// The elements of a tensor that a Slice selects, with all axes ascending, and the axes with negative steps, which are
// to be flipped.
struct Sliced {
  at::Tensor part;
  std::vector<int64_t> mirrored;

  at::Tensor Mirror(const at::Tensor& x) const { return mirrored.empty() ? x : at::flip(x, mirrored); }
};

Sliced MakeSliced(const at::Tensor& whole, at::IntArrayRef sizes, const Attrs& attrs) {
  const std::vector<int64_t> starts = attrs.Ints("starts"), steps = attrs.Ints("steps");
  Sliced s{whole, {}};
  for (int64_t i = 0; i < whole.dim(); ++i) {
    if (sizes[i] == 0) {
      s.part = s.part.narrow(i, 0, 0);
      continue;
    }
    const int64_t last = starts[i] + (sizes[i] - 1) * steps[i];
    if (steps[i] < 0) s.mirrored.push_back(i);
    s.part = s.part.slice(i, std::min(starts[i], last), std::max(starts[i], last) + 1, std::abs(steps[i]));
  }
  return s;
}

Run Slice(const Args& a) {
  return [s = MakeSliced(a.in[0], a.out[0].sizes(), a.attrs()), y = a.out[0]] { y.copy_(s.Mirror(s.part)); };
}

Run SliceGrad(const Args& a) {
  return [s = MakeSliced(a.out[0], a.in[0].sizes(), a.attrs()), dy = a.in[0], dx = a.out[0]] {
    dx.zero_();
    s.part.copy_(s.Mirror(dy));
  };
}

Run Pad(const Args& a) {
  const std::vector<int64_t> pads = a.attrs().Ints("pads");
  at::Tensor inner = a.out[0];
  for (int64_t i = 0; i < inner.dim(); ++i) inner = inner.narrow(i, pads[i], a.in[0].size(i));
  return [=, x = a.in[0], y = a.out[0], value = a.attrs().Float("value")] {
    y.fill_(value);
    inner.copy_(x);
  };
}

}  // namespace

std::span<const NamedKernel> ShapeKernels() {
  static constexpr NamedKernel kKernels[] = {
      {"Reshape", {Reshape, Types::kAny}},     {"Transpose", {Transpose, Types::kAny}},
      {"Expand", {Expand, Types::kAny}},       {"Concat", {Concat, Types::kAny}},
      {"Split", {Split, Types::kAny}},         {"Slice", {Slice, Types::kAny}},
      {"SliceGrad", {SliceGrad, Types::kAny}}, {"Pad", {Pad, Types::kAny}},
  };
  return kKernels;
}

}  // namespace onnxtrain::aten
