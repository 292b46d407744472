// A compiled graph on the CPU.
#pragma once

#include <memory>
#include <vector>

#include "backends/backend.h"

namespace onnxtrain::cpu {

// `threads` is the size of the thread pool during runs, 0 for the environment's.
absl::StatusOr<std::unique_ptr<Program>> CompileProgram(const Graph& graph, const CompileOptions& options, int threads);

// See Backend::Workspaces.
absl::StatusOr<std::vector<size_t>> NodeWorkspaces(const Graph& graph, int threads);

}  // namespace onnxtrain::cpu
