// Convolution backward weights in float32 with vectors of 16 lanes.
#pragma once

#include <optional>

#include "backends/cpu/kernels/conv.h"
#include "backends/cpu/runtime/kernel.h"

namespace onnxtrain::cpu {

// From x [N,C,H,W] and dy [N,M,P,Q], channels last, to row-major weights [M,C,…]; empty where oneDNN's kernel is as
// fast.
std::optional<Kernel> MakeDirectWeightGrad(const ConvGeometry& g, DType factors);

}  // namespace onnxtrain::cpu
