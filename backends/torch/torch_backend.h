// The torch backend, for backend.cc and for tests that replace the compiler of generated kernels.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/torch/fuse/kernel_compiler.h"

#include <c10/core/Device.h>

namespace onnxtrain::aten {

// Fuses graphs into generated kernels where there is a compiler for them; null: runs ATen's kernels alone. The compiler
// must outlive the backend and its programs. `tf32`: convolutions of float32 may round factors to TF32.
std::unique_ptr<Backend> MakeTorchBackend(c10::Device device, KernelCompiler* compiler, bool tf32 = false);

}  // namespace onnxtrain::aten
