// Type rules, and checks for type rules and import functions.
//
// A rule must be total: any types and attribute values of the declared kinds give types or an error.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numbers>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/base/status.h"
#include "frontend/graph/attrs.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

using TypesOr = absl::StatusOr<std::vector<Type>>;

// The output has the type of input 0: any type, a float type, any type but bool.
TypesOr SameAsInput(const TypeContext& c);
TypesOr SameAsFloatInput(const TypeContext& c);
TypesOr SameAsNumericInput(const TypeContext& c);
// All inputs are present and have one float type, the output's.
TypesOr SameFloatInputs(const TypeContext& c);
// A float input, a bool output of its shape.
TypesOr PredicateOfFloat(const TypeContext& c);
// Two broadcast inputs of one element type: any type but bool; the same with a bool output; bool.
TypesOr BroadcastNumeric(const TypeContext& c);
TypesOr BroadcastCompare(const TypeContext& c);
TypesOr BroadcastBool(const TypeContext& c);

absl::Status RequireFloat(const TypeContext& c, size_t i);
absl::Status RequireNumeric(const TypeContext& c, size_t i);
absl::Status RequireDType(const TypeContext& c, size_t i, DType dtype);
absl::Status RequireSameDType(const TypeContext& c, size_t i, size_t j);
absl::Status RequireMinRank(const TypeContext& c, size_t i, int rank);
absl::Status RequireShape(const TypeContext& c, size_t i, const Shape& shape);
absl::StatusOr<Shape> BroadcastOrError(const Shape& a, const Shape& b);

// Returns the attribute `axis`, checked to be in [0, rank).
absl::StatusOr<int64_t> AxisAttr(const TypeContext& c, int rank);
// Returns a mask of `axes` (all if empty) for a tensor of this rank. Fails on an axis outside [0, rank) and on a
// repeat.
absl::StatusOr<std::vector<bool>> AxesMask(const std::vector<int64_t>& axes, int rank);
// Returns the shape after reduction over the masked axes.
Shape ReducedShape(const Shape& shape, const std::vector<bool>& mask, bool keepdims);
// Returns a shape attribute, checked.
absl::StatusOr<Shape> ShapeAttr(const TypeContext& c, std::string_view name);
// Returns an attribute with one integer per axis.
absl::StatusOr<std::vector<int64_t>> IntsPerAxis(const TypeContext& c, std::string_view name, int rank);

// The largest tensor that import materializes in host memory for a node (Range, ConstantOfShape, OneHot …).
inline constexpr int64_t kMaxHostConstantBytes = int64_t{256} << 20;
// Fails on an invalid shape or one above the limit. Call it before allocating.
absl::Status CheckHostConstant(const Type& type);

// Checks for the type rules of convolution, pooling, normalization and losses, in addition to rules.h.

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

// Gains of Kaiming initialization, for rows of activations.

inline double ReluGain(const Attrs&) { return std::numbers::sqrt2; }  // He et al., 2015
inline double XavierGain(const Attrs&) { return 0; }                  // saturates: Glorot and Bengio, 2010

}  // namespace onnxtrain
