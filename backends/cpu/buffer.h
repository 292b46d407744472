#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/backend.h"

namespace onnxtrain::cpu {

// Zeroed host memory. Fails, instead of ending the process, where the system has none left.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateBuffer(size_t bytes);

}  // namespace onnxtrain::cpu
