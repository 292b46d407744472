// Gradients of convolutions' weights by a kernel of our own, for float32 and vectors of 16.
#pragma once

#include <optional>

#include "backends/cpu/kernel.h"
#include "backends/cpu/kernels/conv.h"

namespace onnxtrain::cpu {

// Of x [N,H,W,C] and dy [N,P,Q,M], to plain weights [M,C,…]; or nothing where oneDNN's kernel serves as well or better.
std::optional<Kernel> OwnWeightGrad(const ConvGeometry& g, DType factors);

}  // namespace onnxtrain::cpu
