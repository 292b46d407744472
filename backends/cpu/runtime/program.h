// A compiled graph on the CPU.
#pragma once

#include <memory>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/runtime/kernel_cache.h"

namespace onnxtrain::cpu {

// Fuses and compiles a legalized graph. `threads` is the size of the thread pool during runs, 0: the environment's. The
// program does not refer to `cache`.
absl::StatusOr<std::unique_ptr<Program>> CompileProgram(const Graph& legal, const CompileOptions& options, int threads,
                                                        KernelCache& cache);

// Implements Backend::Workspaces.
absl::StatusOr<std::vector<size_t>> NodeWorkspaces(const Graph& graph, int threads, KernelCache& cache);

}  // namespace onnxtrain::cpu
