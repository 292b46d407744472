// Checks that the type rules of convolutions, pooling, normalization and losses share.
#pragma once

#include "frontend/base/status.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

// The first `n` inputs, where present, have one floating-point element type.
inline absl::Status CheckFloats(const TypeContext& c, size_t n) {
  if (!IsFloat(c.in(0).dtype)) return Invalid("expected floating point, got ", ToString(c.in(0)));
  for (size_t i = 1; i < n; ++i) {
    if (c.has(i) && c.in(i).dtype != c.in(0).dtype) {
      return Invalid("input ", i, " should have the element type of input 0, ", NameOf(c.in(0).dtype), ", got ",
                     ToString(c.in(i)));
    }
  }
  return absl::OkStatus();
}

// Input i, where present, has this shape.
inline absl::Status CheckInputShape(const TypeContext& c, size_t i, const Shape& shape) {
  if (!c.has(i) || c.in(i).shape == shape) return absl::OkStatus();
  return Invalid("input ", i, " should have shape ", ToString(shape), ", got ", ToString(c.in(i)));
}

inline absl::Status CheckInputType(const TypeContext& c, size_t i, const Type& type) {
  if (!c.has(i) || c.in(i) == type) return absl::OkStatus();
  return Invalid("input ", i, " should be ", ToString(type), ", got ", ToString(c.in(i)));
}

// The attribute `axis`, which is in [0, rank of input 0).
inline absl::Status CheckAxis(const TypeContext& c) {
  const int64_t axis = c.attrs.Int("axis");
  if (axis >= 0 && axis < c.in(0).rank()) return absl::OkStatus();
  return Invalid("axis ", axis, " is outside ", ToString(c.in(0)));
}

}  // namespace onnxtrain
