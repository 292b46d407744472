// The family of recurrent kernels.
#pragma once

#include "backends/torch/kernel.h"

namespace onnxtrain::aten {

std::span<const NamedKernel> RecurrentKernels();

}  // namespace onnxtrain::aten
