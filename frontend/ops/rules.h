// Common type rules, and checks for type rules and import functions.
//
// A type rule must return types or an error for any input types and any attribute values of the declared kinds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numbers>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/base/status.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

using TypesOr = absl::StatusOr<std::vector<Type>>;

// The output has the type of input 0, which is any type, a float type, or any type but bool.
TypesOr SameAsInput(const TypeContext& c);
TypesOr SameAsFloatInput(const TypeContext& c);
TypesOr SameAsNumericInput(const TypeContext& c);
// All inputs are present, and inputs and output have one float type.
TypesOr SameFloatInputs(const TypeContext& c);
// The input is a float, the output a bool of the same shape.
TypesOr PredicateOfFloat(const TypeContext& c);
// Two inputs of one element type broadcast against each other. Numeric: any type but bool. Compare: the output is bool.
// Logic: inputs and output are bool.
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
// Returns by axis whether it is in `axes` (all if empty). Fails on an axis outside [0, rank) and on repeats.
absl::StatusOr<std::vector<bool>> AxesMask(const std::vector<int64_t>& axes, int rank);
// Returns the shape after reduction over the masked axes.
Shape ReducedShape(const Shape& shape, const std::vector<bool>& mask, bool keepdims);
// Returns a shape attribute after CheckShape.
absl::StatusOr<Shape> ShapeAttr(const TypeContext& c, std::string_view name);
// Returns an attribute with one integer per axis.
absl::StatusOr<std::vector<int64_t>> IntsPerAxis(const TypeContext& c, std::string_view name, int rank);

// Limits the tensors that import materializes in host memory for a node (Range, ConstantOfShape, OneHot …).
inline constexpr int64_t kMaxHostConstantBytes = int64_t{256} << 20;
// Fails on an invalid shape and above kMaxHostConstantBytes. Must be called before allocating.
absl::Status CheckHostConstant(const Type& type);

// Requires one float type for the first `n` inputs, as far as they are present.
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

// Requires input `key` to be the key of a random operator, and the attribute `ratio` to be in [0, 1).
inline absl::Status CheckDropout(const TypeContext& c, size_t key) {
  RETURN_IF_ERROR(CheckInputType(c, key, {DType::kUInt32, {4}}));
  const double ratio = c.attrs.Float("ratio");
  return ratio >= 0 && ratio < 1 ? absl::OkStatus() : Invalid("ratio ", ratio, " is outside [0, 1)");
}

// Requires the attribute `axis` to be an axis of input 0.
inline absl::Status CheckAxis(const TypeContext& c) { return AxisAttr(c, c.in(0).rank()).status(); }

// Values for InitTraits::gain of activations.
inline double ReluGain(const Attrs&) { return std::numbers::sqrt2; }  // He et al., 2015
inline double XavierGain(const Attrs&) { return 0; }                  // saturating activations: Glorot and Bengio, 2010

}  // namespace onnxtrain
