// The torch backend with and without generated kernels, on the CPU or on ONNXTRAIN_TEST_DEVICE (cuda:0).
#pragma once

#include <span>

#include "backends/torch/torch_backend.h"

namespace onnxtrain::aten {

c10::Device TestDevice();
KernelCompiler& TestCompiler();  // of that device
Backend& PlainBackend();
Backend& FusingBackend();

// Prepares for running these kernels: on the CPU, compiling all at once takes little longer than one.
absl::Status CompileAll(std::span<const GeneratedKernel> kernels);

}  // namespace onnxtrain::aten
