// Sliding windows of convolution and pooling: their attributes, and padding that ATen's kernels do not support.
#pragma once

#include <vector>

#include "backends/torch/kernel.h"

namespace onnxtrain::aten {

struct Window {
  std::vector<int64_t> kernel, strides, dilations, begin, end;  // one per spatial axis

  size_t rank() const { return strides.size(); }
  bool symmetric() const { return begin == end; }
  bool dilated() const;
  // Returns the pads in the order of constant_pad_nd: begin and end of the last axis first.
  std::vector<int64_t> PadList() const;
};

// Makes the window of a node from its attributes. `kernel` may be empty if the node has weights.
Window MakeWindow(const Attrs& attrs, std::vector<int64_t> kernel);

// Returns a copy of x with the pads of the window, filled with `value`.
at::Tensor Padded(const at::Tensor& x, const Window& window, double value);
// Returns a view of a padded tensor without its pads; `spatial` are the unpadded extents.
at::Tensor Unpadded(const at::Tensor& padded, const Window& window, at::IntArrayRef spatial);

}  // namespace onnxtrain::aten
