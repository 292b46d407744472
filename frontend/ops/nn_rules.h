// Checks that the type rules of convolutions, pooling, normalization and losses share, beside those of rules.h.
#pragma once

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {

// The first `n` inputs, where present, have one floating-point element type.
inline absl::Status CheckFloats(const TypeContext& c, size_t n) {
  RETURN_IF_ERROR(RequireFloat(c, 0));
  for (size_t i = 1; i < std::min(n, c.inputs.size()); ++i) {
    if (c.has(i)) RETURN_IF_ERROR(RequireSameDType(c, i, 0));
  }
  return absl::OkStatus();
}

// Input i, where present, has this shape.
inline absl::Status CheckInputShape(const TypeContext& c, size_t i, const Shape& shape) {
  return c.has(i) ? RequireShape(c, i, shape) : absl::OkStatus();
}

inline absl::Status CheckInputType(const TypeContext& c, size_t i, const Type& type) {
  RETURN_IF_ERROR(RequireDType(c, i, type.dtype));
  return RequireShape(c, i, type.shape);
}

// The attribute `axis`, which is in [0, rank of input 0).
inline absl::Status CheckAxis(const TypeContext& c) { return AxisAttr(c, c.in(0).rank()).status(); }

}  // namespace onnxtrain
