// Index semantics of Gather, Scatter and related operators.
#pragma once

#include <algorithm>

#include "absl/status/status.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/ops/host_eval.h"

namespace onnxtrain {

// Resolves an index: one in [−n, 0) counts from the end, one outside [−n, n) is clamped.
inline int64_t ResolveIndex(int64_t index, int64_t n) {
  return std::clamp<int64_t>(index < 0 ? index + n : index, 0, n - 1);
}

// Fails for an empty axis: no index can be clamped into it.
absl::Status CheckIndexable(const Shape& x, int64_t axis, const Shape& index);
// Checks an index of GatherElements or ScatterElements: it has x's rank and may be smaller along every axis but `axis`.
absl::Status CheckElementsIndex(const Shape& x, const Shape& index, int64_t axis);

// Calls f(i, offset in x) for each element i of `index`.
template <typename F>
void WalkElements(const Shape& x, const HostTensor& index, int64_t axis, F f) {
  const Shape strides = Strides(x);
  Shape others = strides;
  others[axis] = 0;
  Walk<1>(index.shape(), {others}, {0}, [&](int64_t i, const std::array<int64_t, 1>& at) {
    f(i, at[0] + ResolveIndex(index.IntAt(i), x[axis]) * strides[axis]);
  });
}

}  // namespace onnxtrain
