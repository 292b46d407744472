#include "optim/telemetry/resources.h"

#include <time.h>

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

}  // namespace

ResourceMonitor::ResourceMonitor() : taken_at_(Clock::now()), cpu_seconds_(CpuSeconds()) {}

ResourceReading ResourceMonitor::Take() {
  const Clock::time_point now = Clock::now();
  const double cpu_seconds = CpuSeconds(), seconds = std::chrono::duration<double>(now - taken_at_).count();
  const ResourceReading reading{.busy_cpus = seconds > 0 ? (cpu_seconds - cpu_seconds_) / seconds : 0,
                                .resident_bytes = StatusBytes("VmRSS:")};
  taken_at_ = now;
  cpu_seconds_ = cpu_seconds;
  return reading;
}

// Not getrusage: its peak survives exec, so a process would begin with that of its parent.
int64_t PeakResidentBytes() { return StatusBytes("VmHWM:"); }

}  // namespace onnxtrain
