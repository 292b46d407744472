// CPUs and memory that this process may use. Linux, cgroup v2 and v1.
#pragma once

#include <cstddef>
#include <string>

namespace onnxtrain {

// Returns the bytes that this process can still map under RLIMIT_AS (`ulimit -v`), infinity without a limit.
double AvailableAddressSpace();

// Declares that `processes` processes of equal size share the machine: AvailableMemory() then returns the share of one.
void ShareMemory(int processes);

// Returns the smaller of the CPUs in the affinity mask and the cgroup's quota, rounded up; at least 1.
int CpuCount();

// Return the CPU quota (in CPUs) and the memory left (in bytes) of the process's control group: the minimum over the
// group and all its ancestors, infinity without a limit. Tests replace the "/" of /proc and /sys by `root`.
double CgroupCpuLimit(const std::string& root = "");
double CgroupAvailableMemory(const std::string& root = "");

// Returns the model of the processor, "Intel(R) Xeon(R) Processor @ 2.20GHz", or "unknown".
std::string CpuName();

// Returns the bytes that can still be allocated: the smaller of MemAvailable and CgroupAvailableMemory().
size_t AvailableMemory();

// Returns free heap pages to the system, so that they do not add to the planned memory. Supports the heap of the C
// library and, in programs that link it, jemalloc.
void ReturnFreePages();

// Makes the heap return every freed block of 1 MiB or more (with jemalloc, all free pages) immediately. By default, the
// threads that receive, load or multiply retain up to 32 MiB each. Costs page faults.
void KeepFewFreePages();

}  // namespace onnxtrain
