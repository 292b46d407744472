// Compiles a graph to a Program: a static list of prepared kernels over planned memory.
#pragma once

#include <memory>

#include <c10/core/Device.h>
#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "backends/torch/fuse/kernel_compiler.h"

namespace onnxtrain::aten {

// Plans memory, compiles generated kernels with `compiler` (may be null if the graph has none), uploads the constants
// and measures ATen's own scratch by one run over zeros.
absl::StatusOr<std::unique_ptr<Program>> MakeProgram(const Graph& graph, const CompileOptions& options,
                                                     c10::Device device, KernelCompiler* compiler);

}  // namespace onnxtrain::aten
