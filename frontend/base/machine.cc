#include "frontend/base/machine.h"

#include <malloc.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "frontend/base/strings.h"

// The control function of jemalloc (jemalloc(3)); null in programs with another heap.
extern "C" int mallctl(const char* name, void* old_value, size_t* old_size, void* new_value, size_t new_size)
    __attribute__((weak));

namespace onnxtrain {

double AvailableAddressSpace() {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNone;
  std::ifstream file("/proc/self/statm");
  double pages;
  if (!(file >> pages)) return kNone;
  return std::max(0.0, static_cast<double>(limit.rlim_cur) - pages * static_cast<double>(sysconf(_SC_PAGESIZE)));
}

namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

// Reads the first number of a file of the cgroup file system; infinity for "max" and absent files.
double ReadNumber(const std::string& path) {
  std::ifstream file(path);
  double value;
  return file >> value ? value : kNone;
}

// Lists the folders of this process's cgroups (versions 2 and 1) that can limit `controller`, from its own group up to
// the root. A container may see its own group as the root; then only that one exists.
std::vector<std::string> GroupFolders(const std::string& root, const std::string& controller) {
  const std::string mount = root + "/sys/fs/cgroup";
  std::vector<std::string> folders = {mount, StrCat(mount, "/", controller)};
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // ID:CONTROLLERS:/GROUP; version 2 has no controllers
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos || line.substr(second + 1, 1) != "/") continue;
    const std::string controllers = line.substr(first, second - first);
    const bool all = controllers == ":";
    if (!all && StrCat(",", controllers.substr(1), ",").find(StrCat(",", controller, ",")) == std::string::npos)
      continue;
    for (std::string group = line.substr(second + 1); group.size() > 1; group.resize(group.rfind('/'))) {
      folders.push_back(folders[all ? 0 : 1] + group);
    }
  }
  return folders;
}

double ReadCpuQuota(const std::string& folder) {
  std::ifstream second(folder + "/cpu.max");  // "max 100000" without a quota
  double quota, period;
  if (second >> quota >> period && quota > 0 && period > 0) return quota / period;
  quota = ReadNumber(folder + "/cpu.cfs_quota_us");  // -1 without a quota
  period = ReadNumber(folder + "/cpu.cfs_period_us");
  return quota > 0 && quota != kNone && period > 0 && period != kNone ? quota / period : kNone;
}

double MemoryLeft(const std::string& folder) {
  const double second = ReadNumber(folder + "/memory.max") - ReadNumber(folder + "/memory.current");
  const double first = ReadNumber(folder + "/memory.limit_in_bytes") - ReadNumber(folder + "/memory.usage_in_bytes");
  // Infinity minus infinity is NaN: there is no limit.
  return std::min(std::isnan(second) || second == -kNone ? kNone : second,
                  std::isnan(first) || first == -kNone ? kNone : first);
}

double MinLimit(const std::vector<std::string>& folders, double (*limit)(const std::string&)) {
  double least = kNone;
  for (const std::string& folder : folders) least = std::min(least, limit(folder));
  return least;
}

double MemAvailable() {
  std::ifstream file("/proc/meminfo");
  for (std::string key; file >> key; file.ignore(256, '\n')) {
    double kib;
    if (key == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return kNone;
}

std::atomic<int> sharing_processes{1};

}  // namespace

void ShareMemory(int processes) { sharing_processes = std::max(1, processes); }

double CgroupCpuLimit(const std::string& root) { return MinLimit(GroupFolders(root, "cpu"), ReadCpuQuota); }

int CpuCount() {
  cpu_set_t set;
  // sched_getaffinity fails where the machine has more CPUs than the set has bits.
  const double affinity = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
  return std::max(1, static_cast<int>(std::min(affinity, std::ceil(CgroupCpuLimit()))));
}

double CgroupAvailableMemory(const std::string& root) { return MinLimit(GroupFolders(root, "memory"), MemoryLeft); }

size_t AvailableMemory() {
  const double bytes = std::max(0.0, std::min({MemAvailable(), CgroupAvailableMemory(), AvailableAddressSpace()}));
  return bytes >= 1e18 ? std::numeric_limits<size_t>::max() : static_cast<size_t>(bytes / sharing_processes);
}

std::string CpuName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

namespace {

constexpr int kMappedBytes = 1 << 20;
constexpr char kPurgeAll[] = "arena.4096.purge";  // MALLCTL_ARENAS_ALL

// Sets jemalloc's decay times to 0, in existing and in later arenas.
void DecayAtOnce() {
  ssize_t milliseconds = 0;
  for (const std::string kind : {"dirty", "muzzy"}) {
    const std::string setting = kind + "_decay_ms";
    mallctl(("arenas." + setting).c_str(), nullptr, nullptr, &milliseconds, sizeof milliseconds);  // later arenas
    unsigned arenas = 0;
    size_t size = sizeof arenas;
    mallctl("arenas.narenas", &arenas, &size, nullptr, 0);
    for (unsigned i = 0; i < arenas; ++i)
      mallctl(("arena." + std::to_string(i) + "." + setting).c_str(), nullptr, nullptr, &milliseconds,
              sizeof milliseconds);
  }
}

}  // namespace

void ReturnFreePages() {
  malloc_trim(0);
  if (mallctl != nullptr) mallctl(kPurgeAll, nullptr, nullptr, nullptr, 0);
}

void KeepFewFreePages() {
  mallopt(M_MMAP_THRESHOLD, kMappedBytes);
  if (mallctl != nullptr) DecayAtOnce();
  ReturnFreePages();
}

}  // namespace onnxtrain
