// Returns memory that nothing uses to the system.
#pragma once

namespace onnxtrain {

// Returns the pages that the heap keeps for later allocations to the system, so that they do not count beside a plan.
// Knows the heap of the C library and, where the program links it, jemalloc.
void ReturnFreePages();

// From now on, returns free blocks of 1 MiB and more (with jemalloc, all free pages) at once. By default, threads that
// receive, load or multiply keep up to 32 MiB each. Costs page faults.
void KeepFewFreePages();

}  // namespace onnxtrain
