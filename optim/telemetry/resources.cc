#include "optim/telemetry/resources.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace onnxtrain {
namespace {

using Clock = std::chrono::steady_clock;

double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// A number of KiB in /proc/self/status, in bytes.
int64_t StatusBytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return int64_t{1024} * std::atoll(line.c_str() + key.size());
  }
  return 0;
}

// The second number of /proc/self/statm, in pages. Allocates nothing: it is read while training.
int64_t ResidentBytes() {
  const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[128] = {};
  const ssize_t size = read(fd, text, sizeof(text) - 1);
  close(fd);
  const char* second = size > 0 ? std::strchr(text, ' ') : nullptr;
  return second != nullptr ? std::atoll(second) * sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace

ResourceMonitor::ResourceMonitor() : taken_at_(Clock::now()), cpu_seconds_(CpuSeconds()) {}

ResourceReading ResourceMonitor::Take() {
  const Clock::time_point now = Clock::now();
  const double cpu_seconds = CpuSeconds(), seconds = std::chrono::duration<double>(now - taken_at_).count();
  const ResourceReading reading{.busy_cpus = seconds > 0 ? (cpu_seconds - cpu_seconds_) / seconds : 0,
                                .resident_bytes = ResidentBytes()};
  taken_at_ = now;
  cpu_seconds_ = cpu_seconds;
  return reading;
}

// Not getrusage: its peak survives exec, so a process would begin with that of its parent.
int64_t PeakResidentBytes() { return StatusBytes("VmHWM:"); }

}  // namespace onnxtrain
