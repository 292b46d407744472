// Kernels from functions of rows, with broadcasting.
#pragma once

#include <array>
#include <cstring>
#include <span>

#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"

namespace onnxtrain::cpu {

// y = f(x), both dense and of the same shape. `cost` is the relative cost of an element.
Kernel UnaryKernel(const KernelContext& c, UnarySpan span, std::array<float, 2> params = {}, int64_t cost = 1);
// y = f(a, b) with broadcasting.
Kernel BinaryKernel(const KernelContext& c, const BinarySpans& spans, int64_t cost = 1);

}  // namespace onnxtrain::cpu
