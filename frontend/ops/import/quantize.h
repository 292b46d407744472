// Helpers for imports of quantized operators.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {

// Returns input i, a scale or zero point, untrained. Invalid if absent.
Val FixedInput(ImportContext& c, size_t i);

// A quantized input, as floats: (points − zero)·scale. Scale and zero broadcast against the points; zero may be
// invalid.
struct QuantizedInput {
  Val points, scale, zero;

  Val Centered() const;  // points − zero
  Val Real() const { return Centered() * scale; }
};
// Integers that a weight is stored as become a float weight on the grid. `axis` and `block` as in ScaleLayout::Create.
absl::StatusOr<QuantizedInput> ReadQuantized(ImportContext& c, size_t tensor, size_t scale, size_t zero,
                                             int64_t axis = 1, int64_t block = 0);
// A bias on the grid of products with these scales (inputs), as floats; an int32 initializer becomes a float weight.
// Invalid if absent.
absl::StatusOr<Val> ReadQuantizedBias(ImportContext& c, size_t bias, size_t scale, size_t factor);
// x, quantized with the scale and zero point (uint8 where absent) of those inputs, one for the tensor or each index of
// axis 1.
absl::StatusOr<Val> Quantize(ImportContext& c, Val x, size_t scale, size_t zero);

// x on a grid of uint8 that its own range gives.
struct DynamicRange {
  Val points, scale, zero;  // floats; the latter two are scalars without a gradient
};
DynamicRange QuantizedDynamically(Val x);

}  // namespace onnxtrain
