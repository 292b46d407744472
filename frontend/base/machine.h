// CPUs and memory that this process may use. Linux, cgroup v2 and v1.
#pragma once

#include <cstddef>
#include <string>

namespace onnxtrain {

// The address space that `ulimit -v` leaves this process.

// Returns the bytes that can still be mapped under RLIMIT_AS, infinity without a limit.
double AvailableAddressSpace();

// Processes of one job on one machine.

// AvailableMemory() returns this process's share from now on, where `processes` of one size run on the machine.
void ShareMemory(int processes);

// Returns the smaller of the CPUs in the affinity mask and the cgroup's quota, rounded up; at least 1.
int CpuCount();

// Return the CPU quota and the memory left below the limit of the process's control group, in CPUs and in bytes: the
// minimum over its own group and all groups above, infinity without a limit. `root` replaces "/" before /proc and /sys
// in tests.
double CgroupCpuLimit(const std::string& root = "");
double CgroupAvailableMemory(const std::string& root = "");

// Returns the model of the processor, "Intel(R) Xeon(R) Processor @ 2.20GHz", or "unknown".
std::string CpuName();

// Returns the bytes that can still be allocated: the smaller of MemAvailable and CgroupAvailableMemory().
size_t AvailableMemory();

}  // namespace onnxtrain
