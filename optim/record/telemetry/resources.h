// What this process, and the machine, are busy with. Linux.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace onnxtrain {

// What the GPUs of the machine are busy with, by NVML, which is loaded at run time.

struct GpuReading {
  double utilization = 0;  // share of the last second or less that a kernel ran
  int64_t memory_bytes = 0;
  double watts = 0, celsius = 0;
};

// Thread-compatible.
class GpuMonitor {
 public:
  // Null where the library cannot be loaded or knows no GPU: most machines have none, and that is no error.
  static std::unique_ptr<GpuMonitor> Create(const std::string& library = "libnvidia-ml.so.1");
  virtual ~GpuMonitor() = default;
  // By index of the machine, whatever CUDA_VISIBLE_DEVICES says. What a GPU does not report is 0.
  virtual std::vector<GpuReading> Take() = 0;
};

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
