#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/backend.h"

namespace onnxtrain::cpu {

// Zeroed host memory. Fails, instead of ending the process, where the system has none left.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateBuffer(size_t bytes);

// For memory that a step passes over many times, before it is touched: huge pages save misses of the TLB there. They take a
// system far longer to find than small ones, so what is passed over once a step (weights, moments) does without.
// `begin`: of a buffer. A failure is harmless.
void PreferHugePages(void* begin, size_t bytes);

}  // namespace onnxtrain::cpu
