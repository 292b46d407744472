// A compiled graph on the CPU.
#pragma once

#include <memory>

#include "backends/backend.h"

namespace onnxtrain::cpu {

// `threads` is the size of the thread pool during runs, 0 for the environment's.
absl::StatusOr<std::unique_ptr<Program>> CompileProgram(const Graph& graph, const CompileOptions& options, int threads);

}  // namespace onnxtrain::cpu
