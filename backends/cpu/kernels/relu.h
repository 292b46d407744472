// Applies Relu to the results of oneDNN's products and convolutions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "backends/cpu/kernels/typed.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"

namespace onnxtrain::cpu {

inline void ReluInPlace(float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = y[i] < 0.0f ? 0.0f : y[i];
}

// Compares bits: negative numbers, from −∞ to the one closest to zero, have the bits 0xff80 down to 0x8001.
inline void ReluInPlace(BFloat16* y, int64_t n) {
  auto* bits = reinterpret_cast<uint16_t*>(y);
  for (int64_t i = 0; i < n; ++i) bits[i] = bits[i] > 0x8000 && bits[i] <= 0xff80 ? uint16_t{0} : bits[i];
}

// Applies Relu to output 0 of a kernel, in place. oneDNN's post-op is max(x, 0), which turns NaN into 0 and would hide
// that a model has diverged.
template <typename T>
Kernel ApplyRelu(Kernel kernel, int64_t size) {
  const size_t workspace = kernel.workspace;
  return {.run =
              [run = std::move(kernel.run), size](const Args& args) {
                run(args);
                T* y = args.out<T>();
                Parallel(size, 1, [=](int64_t begin, int64_t end) { ReluInPlace(y + begin, end - begin); });
              },
          .workspace = workspace};
}

inline Kernel ApplyRelu(Kernel kernel, const Type& y) {
  return y.dtype == DType::kBFloat16 ? ApplyRelu<BFloat16>(std::move(kernel), y.elements())
                                     : ApplyRelu<float>(std::move(kernel), y.elements());
}

}  // namespace onnxtrain::cpu
