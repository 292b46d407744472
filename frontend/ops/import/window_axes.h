// Windows over more spatial axes than the operators have. An axis along which every window is one element belongs to
// the samples or to the channels: JAX's reduce_window over [N,H,W,C] is exported as windows of 1×2×2×1 over
// [1,1,N,H,W,C].
#pragma once

#include "frontend/ops/import/nn.h"

namespace onnxtrain {

struct WindowAxes {
  Val x;      // [N', C', spatial…] of at most kMaxSpatialAxes
  Windows w;  // over these axes

  bool folded() const { return !order.empty(); }
  // Takes a result [N', C'', spatial…] apart again: in the order of the input's axes.
  Val Restore(Val y) const;

  std::vector<int64_t> order;  // of the input's axes, as they are joined in x; empty where they are x's
  Shape joined;                // their extents in this order
  int channel = 1;             // where the channels are in it
};

// Folds axes of single elements into the samples and, where each channel is pooled by itself, into the channels (the
// axes behind the first true window). Changes nothing up to kMaxSpatialAxes. Negative pads must have been applied.
absl::StatusOr<WindowAxes> FoldWindowAxes(Val x, Windows w, bool channels_alone);
// The weights [O, I, kernel…] of a convolution over x, without the axes that were folded.
Val FoldKernel(Val weights, const WindowAxes& axes);

}  // namespace onnxtrain
