// The source that generated kernels begin with.
#pragma once

#include <string>

namespace onnxtrain::aten {

struct PreludeOptions {
  bool wide = false;        // the type `real`, in which kernels compute, is double; else float
  bool long_index = false;  // elements are counted in 64 bits
};

// Returns the functions that generated kernels call. The source is valid CUDA C++, and valid C++ given definitions of
// CUDA's keywords (blockIdx, __shared__, __syncthreads …).
std::string MakePrelude(const PreludeOptions& options);

}  // namespace onnxtrain::aten
