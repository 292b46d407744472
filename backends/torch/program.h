// A compiled graph: a static list of prepared kernels over planned memory.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/backend.h"

#include <c10/core/Device.h>

namespace onnxtrain::aten {

// Plans memory, uploads the constants and measures ATen's own scratch by one run over zeros.
absl::StatusOr<std::unique_ptr<Program>> MakeProgram(const Graph& graph, const CompileOptions& options,
                                                     c10::Device device);

}  // namespace onnxtrain::aten
