// What this process may use of the machine. Linux; cgroup v2 and v1.
#pragma once

#include <cstddef>
#include <string>

namespace onnxtrain {

// CPUs: the smaller of the affinity mask and the cgroup's quota (rounded up), at least 1.
int CpuCount();

// What the process's control groups leave it, in CPUs and in bytes: the least of its own group's limit and of those above,
// infinity where there is none. `root`: the folder that /proc and /sys are found in, for tests.
double CgroupCpus(const std::string& root = "");
double CgroupMemoryLeft(const std::string& root = "");

// Bytes that can still be allocated: the smaller of MemAvailable and what is left of the cgroup's limit.
size_t AvailableMemory();

}  // namespace onnxtrain
