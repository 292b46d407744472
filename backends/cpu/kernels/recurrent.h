// The family of recurrent kernels.
#pragma once

#include "backends/cpu/kernel.h"

namespace onnxtrain::cpu {

std::span<const KernelRow> RecurrentKernels();

}  // namespace onnxtrain::cpu
