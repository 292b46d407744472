// Checks for the type rules of convolution, pooling, normalization and losses, in addition to rules.h.
#pragma once

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {

// Requires one floating-point element type of the first `n` inputs that are present.
inline absl::Status CheckFloats(const TypeContext& c, size_t n) {
  RETURN_IF_ERROR(RequireFloat(c, 0));
  for (size_t i = 1; i < std::min(n, c.inputs.size()); ++i) {
    if (c.has(i)) RETURN_IF_ERROR(RequireSameDType(c, i, 0));
  }
  return absl::OkStatus();
}

// Requires the shape of input i, if present.
inline absl::Status CheckInputShape(const TypeContext& c, size_t i, const Shape& shape) {
  return c.has(i) ? RequireShape(c, i, shape) : absl::OkStatus();
}

inline absl::Status CheckInputType(const TypeContext& c, size_t i, const Type& type) {
  RETURN_IF_ERROR(RequireDType(c, i, type.dtype));
  return RequireShape(c, i, type.shape);
}

// Requires input `key` to be the key of a random operator, and the attribute `ratio` to lie in [0, 1).
inline absl::Status CheckDropout(const TypeContext& c, size_t key) {
  RETURN_IF_ERROR(CheckInputType(c, key, {DType::kUInt32, {4}}));
  const double ratio = c.attrs.Float("ratio");
  return ratio >= 0 && ratio < 1 ? absl::OkStatus() : Invalid("ratio ", ratio, " is outside [0, 1)");
}

// Returns the attribute `axis`, checked against the rank of input 0.
inline absl::Status CheckAxis(const TypeContext& c) { return AxisAttr(c, c.in(0).rank()).status(); }

}  // namespace onnxtrain
