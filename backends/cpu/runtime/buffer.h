#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/backend.h"

namespace onnxtrain::cpu {

// Allocates zeroed host memory. Returns an error, instead of ending the process, if the system has none left.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateBuffer(size_t bytes);

// Implements Backend::Borrow.
std::unique_ptr<Buffer> BorrowTensor(const HostTensor& tensor);

// Before memory is touched for the first time. Huge pages save convolutions, which read many rows at a time, misses of
// the TLB (about 4 % of a ResNet-18's step); matrix products, which pack what they read, and passes over flat memory
// gain nothing. A system may take many times as long to find huge pages as small ones. `begin`: of a buffer. A failure
// is harmless.
void AdviseHugePages(void* begin, size_t bytes);

// Faults in the pages of memory that will be updated in place, without changing a byte. A fresh page that is read
// before it is written faults twice, and the second fault flushes every processor's TLB: the first update of an
// optimizer's moments would take ten times as long.
void PrefaultPages(void* begin, size_t bytes);

}  // namespace onnxtrain::cpu
