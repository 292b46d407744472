// Compiles and starts generated kernels.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "backends/torch/fuse/generate.h"

namespace onnxtrain::aten {

class CompiledKernel {
 public:
  virtual ~CompiledKernel() = default;
  // Queues all launches on the current stream of the device. `pointers`: kMostPointers addresses. `blocks`
  // is the number of blocks of a batch; 0: the number that the kernel was generated for.
  virtual absl::Status Launch(std::span<void* const> pointers, int64_t blocks) = 0;
};

class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;
  // Returns the kernel, which equal sources may share. The compiler must outlive it. Not thread-safe.
  virtual absl::StatusOr<std::shared_ptr<CompiledKernel>> Compile(const GeneratedKernel& kernel) = 0;
  // Compiles these kernels on several threads, so that Compile returns fast. Errors are reported by Compile.
  virtual absl::Status CompileAll(std::span<const GeneratedKernel> kernels) { return absl::OkStatus(); }
};

}  // namespace onnxtrain::aten
