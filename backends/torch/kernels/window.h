// Sliding windows of convolution and pooling: attributes, and padding that ATen's kernels lack.
#pragma once

#include <vector>

#include "backends/torch/kernel.h"

namespace onnxtrain::aten {

struct Window {
  std::vector<int64_t> kernel, strides, dilations, begin, end;  // one per spatial axis

  size_t rank() const { return strides.size(); }
  bool symmetric() const { return begin == end; }
  bool dilated() const;
  // In the order of constant_pad_nd: the last axis first, begin and end in turn.
  std::vector<int64_t> PadList() const;
};

// Of a node over `spatial` axes; `kernel` may be empty where the node has weights.
Window MakeWindow(const Attrs& attrs, std::vector<int64_t> kernel);

// x with the window's pads filled with `value`. A copy.
at::Tensor Padded(const at::Tensor& x, const Window& window, double value);
// The part of a padded tensor that holds the original of these spatial extents. A view.
at::Tensor Unpadded(const at::Tensor& padded, const Window& window, at::IntArrayRef spatial);

}  // namespace onnxtrain::aten
