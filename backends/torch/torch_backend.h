// Creates the torch backend, also for tests that replace the compiler of generated kernels, and compiles a graph to a
// Program: a static list of prepared kernels over planned memory.
#pragma once

#include <c10/core/Device.h>
#include <memory>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "backends/torch/fuse/kernel_compiler.h"

namespace onnxtrain::aten {

// Creates the backend of a device. It fuses graphs into kernels that `compiler` compiles; with null, it runs only
// ATen's kernels. The compiler must outlive the backend and its programs. With `tf32`, float32 convolutions may round
// their operands to TF32.
std::unique_ptr<Backend> MakeTorchBackend(c10::Device device, KernelCompiler* compiler, bool tf32 = false);

// Plans memory, compiles generated kernels with `compiler` (may be null if the graph has none), uploads the constants
// and measures ATen's own scratch by one run over zeros.
absl::StatusOr<std::unique_ptr<Program>> MakeProgram(const Graph& graph, const CompileOptions& options,
                                                     c10::Device device, KernelCompiler* compiler);

}  // namespace onnxtrain::aten
