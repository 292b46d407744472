// Creates the torch backend, also for tests that replace the compiler of generated kernels.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/torch/fuse/kernel_compiler.h"

#include <c10/core/Device.h>

namespace onnxtrain::aten {

// Creates the backend of a device. It fuses graphs into kernels that `compiler` compiles; with null, it runs only
// ATen's kernels. The compiler must outlive the backend and its programs. With `tf32`, float32 convolutions may round
// their operands to TF32.
std::unique_ptr<Backend> MakeTorchBackend(c10::Device device, KernelCompiler* compiler, bool tf32 = false);

}  // namespace onnxtrain::aten
