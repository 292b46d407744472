#include "frontend/base/machine.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>

namespace onnxtrain {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

// The first number of a file of the cgroup file system; "max" and absent files are no limit.
double ReadNumber(const char* path) {
  std::ifstream file(path);
  double value;
  return file >> value ? value : kNone;
}

double QuotaCpus() {
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  double quota, period;
  if (v2 >> quota >> period && period > 0) return quota / period;
  quota = ReadNumber("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  period = ReadNumber("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  return quota > 0 && quota != kNone && period > 0 && period != kNone ? quota / period : kNone;
}

double CgroupMemoryLeft() {
  const double v2 = ReadNumber("/sys/fs/cgroup/memory.max") - ReadNumber("/sys/fs/cgroup/memory.current");
  const double v1 = ReadNumber("/sys/fs/cgroup/memory/memory.limit_in_bytes") - ReadNumber("/sys/fs/cgroup/memory/memory.usage_in_bytes");
  // Infinity minus infinity is NaN: no limit.
  return std::min(std::isnan(v2) || v2 == -kNone ? kNone : v2, std::isnan(v1) || v1 == -kNone ? kNone : v1);
}

double MemAvailable() {
  std::ifstream file("/proc/meminfo");
  for (std::string key; file >> key; file.ignore(256, '\n')) {
    double kib;
    if (key == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return kNone;
}

}  // namespace

int CpuCount() {
  cpu_set_t set;
  const int affinity = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return std::max(1, static_cast<int>(std::min<double>(affinity, std::ceil(QuotaCpus()))));
}

size_t AvailableMemory() {
  const double bytes = std::max(0.0, std::min(MemAvailable(), CgroupMemoryLeft()));
  return bytes >= 1e18 ? std::numeric_limits<size_t>::max() : static_cast<size_t>(bytes);
}

}  // namespace onnxtrain
