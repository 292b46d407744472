// Resampling and its gradient in standard ONNX, whose Resize has no gradient.
#pragma once

#include "absl/status/status.h"
#include "frontend/onnx/write/emit.h"

namespace onnxtrain {

// Resample and ResampleGrad: along each axis a Gather where every output is one element, else a product with the matrix
// of the taps.
absl::Status SpellResample(Speller& s, const Node& node);

}  // namespace onnxtrain
