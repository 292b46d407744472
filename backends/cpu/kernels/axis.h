#pragma once

#include "frontend/graph/type.h"

namespace onnxtrain::cpu {

// A dense tensor as [outer, n, inner] around one of its axes.
struct AxisView {
  int64_t outer = 1, n = 1, inner = 1;
};

inline AxisView ViewAround(const Shape& shape, int64_t axis) {
  AxisView v{.n = shape[axis]};
  for (int64_t a = 0; a < axis; ++a) v.outer *= shape[a];
  for (size_t a = axis + 1; a < shape.size(); ++a) v.inner *= shape[a];
  return v;
}

}  // namespace onnxtrain::cpu
