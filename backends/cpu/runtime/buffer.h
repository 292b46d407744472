#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/backend.h"

namespace onnxtrain::cpu {

// Zeroed host memory. Fails, instead of ending the process, where the system has none left.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateBuffer(size_t bytes);

// Before memory is touched for the first time. Huge pages save convolutions, which read many rows at a time, misses of
// the TLB (about 4 % of a ResNet-18's step); matrix products, which pack what they read, and passes over flat memory
// gain nothing. A system may take many times as long to find huge pages as small ones. `begin`: of a buffer. A failure
// is harmless.
void AdviseHugePages(void* begin, size_t bytes);

// Gives memory that is going to be updated in place its pages, and changes no byte. A fresh page that is read before it
// is written faults twice, the second time with every processor's TLB flushed: ten times as long, over all of an
// optimizer's moments in the first step.
void PrefaultPages(void* begin, size_t bytes);

}  // namespace onnxtrain::cpu
