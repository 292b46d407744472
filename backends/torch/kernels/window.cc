#include "backends/torch/kernels/window.h"

#include <algorithm>

#include <ATen/ops/constant_pad_nd.h>

namespace onnxtrain::aten {

bool Window::dilated() const {
  return std::any_of(dilations.begin(), dilations.end(), [](int64_t d) { return d != 1; });
}

std::vector<int64_t> Window::PadList() const {
  std::vector<int64_t> list;
  for (size_t i = rank(); i-- > 0;) list.insert(list.end(), {begin[i], end[i]});
  return list;
}

Window MakeWindow(const Attrs& attrs, std::vector<int64_t> kernel) {
  Window w;
  w.kernel = std::move(kernel);
  w.strides = attrs.Ints("strides");
  w.dilations = attrs.Ints("dilations");
  const std::vector<int64_t> pads = attrs.Ints("pads");
  const size_t rank = w.strides.size();
  w.begin.assign(pads.begin(), pads.begin() + rank);
  w.end.assign(pads.begin() + rank, pads.end());
  return w;
}

at::Tensor Padded(const at::Tensor& x, const Window& window, double value) {
  return at::constant_pad_nd(x, window.PadList(), value);
}

at::Tensor Unpadded(const at::Tensor& padded, const Window& window, at::IntArrayRef spatial) {
  at::Tensor part = padded;
  for (size_t i = 0; i < window.rank(); ++i) {
    part = part.narrow(padded.dim() - window.rank() + i, window.begin[i], spatial[i]);
  }
  return part;
}

}  // namespace onnxtrain::aten
