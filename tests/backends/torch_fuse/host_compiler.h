// Compiles generated kernels for the CPU, with the compiler that built the tests.
#pragma once

#include <map>
#include <string>

#include "backends/torch/fuse/kernel_compiler.h"

namespace onnxtrain::aten {

class HostCompiler : public KernelCompiler {
 public:
  // Compiles all of them at once, which takes little longer than one.
  absl::Status CompileAll(std::span<const GeneratedKernel> kernels) override;
  absl::StatusOr<std::shared_ptr<CompiledKernel>> Compile(const GeneratedKernel& kernel) override;
  int compiled() const { return static_cast<int>(kernels_.size()); }

 private:
  std::map<std::string, std::shared_ptr<CompiledKernel>> kernels_;  // by source
};

}  // namespace onnxtrain::aten
