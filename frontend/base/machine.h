// What this process may use of the machine. Linux; cgroup v2 and v1.
#pragma once

#include <cstddef>

namespace onnxtrain {

// CPUs: the smaller of the affinity mask and the cgroup's quota (rounded up), at least 1.
int CpuCount();

// Bytes that can still be allocated: the smaller of MemAvailable and what is left of the cgroup's limit.
size_t AvailableMemory();

}  // namespace onnxtrain
