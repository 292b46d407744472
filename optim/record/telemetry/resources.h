// What this process, and the machine, are busy with. Linux.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "optim/record/telemetry/gpu_monitor.h"

namespace onnxtrain {

// Rates are means since the reading before. 0 where the system does not report it.
struct ResourceReading {
  double busy_cpus = 0;  // CPU time over wall time
  int64_t resident_bytes = 0;
  double machine_busy_cpus = 0;  // of all processes
  double queued_share = 0;       // of the time, in which the calling thread was ready to run and had no CPU
  double disk_read_rate = 0, disk_write_rate = 0;  // bytes per second from and to disks
  std::vector<GpuReading> gpus;                    // all of the machine that NVML knows; empty without it
};

// Thread-compatible; queued_share needs all calls from one thread. A reading takes some microseconds, and milliseconds
// where there are GPUs.
class ResourceMonitor {
 public:
  ResourceMonitor();
  // The first reading covers the time since construction.
  ResourceReading Take();

 private:
  // Since the process, or the machine, has started.
  struct Totals {
    double cpu_seconds = 0, machine_cpu_seconds = 0, read_bytes = 0, written_bytes = 0, queued_seconds = 0;
  };
  static Totals ReadTotals();

  std::chrono::steady_clock::time_point taken_at_;
  Totals totals_;
  std::shared_ptr<GpuMonitor> gpus_;  // null: there are none
};

// Returns the peak resident memory of this process in bytes; 0 where the system does not report it.
int64_t PeakResidentBytes();

}  // namespace onnxtrain
