#include "test_backends.h"

#include "backends/torch/cuda.h"
#include "host_compiler.h"
#include "tests/test_device.h"

namespace onnxtrain::aten {
namespace {

c10::Device GetDevice() { return c10::Device(TestOptions("torch").device); }

HostCompiler& GetHostCompiler() {
  static auto* compiler = new HostCompiler;
  return *compiler;
}

}  // namespace

Backend& PlainBackend() {
  static Backend* backend = MakeTorchBackend(GetDevice(), nullptr).release();
  return *backend;
}

Backend& FusingBackend() {
  static Backend* backend = [] {
    KernelCompiler* compiler = GetDevice().is_cpu() ? &GetHostCompiler() : FindKernelCompiler(GetDevice());
    return MakeTorchBackend(GetDevice(), compiler).release();
  }();
  return *backend;
}

absl::Status CompileAll(std::span<const GeneratedKernel> kernels) {
  return GetDevice().is_cpu() ? GetHostCompiler().CompileAll(kernels) : absl::OkStatus();
}

}  // namespace onnxtrain::aten
