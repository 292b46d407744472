#include "test_backends.h"

#include <ATen/Context.h>

#include "backends/torch/cuda.h"
#include "host_compiler.h"
#include "tests/test_device.h"

namespace onnxtrain::aten {
namespace {

HostCompiler& GetHostCompiler() {
  static auto* compiler = new HostCompiler;
  return *compiler;
}

}  // namespace

// Its convolutions are compared without TF32, which libtorch allows in the beginning.
c10::Device TestDevice() {
  at::globalContext().setAllowTF32CuDNN(false);
  return c10::Device(TestOptions("torch").device);
}

KernelCompiler& TestCompiler() { return TestDevice().is_cpu() ? GetHostCompiler() : *FindKernelCompiler(TestDevice()); }

Backend& PlainBackend() {
  static Backend* backend = MakeTorchBackend(TestDevice(), nullptr).release();
  return *backend;
}

Backend& FusingBackend() {
  static Backend* backend = MakeTorchBackend(TestDevice(), &TestCompiler()).release();
  return *backend;
}

absl::Status CompileAll(std::span<const GeneratedKernel> kernels) {
  return TestDevice().is_cpu() ? GetHostCompiler().CompileAll(kernels) : absl::OkStatus();
}

}  // namespace onnxtrain::aten
