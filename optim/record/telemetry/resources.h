// Reads the use of CPUs, memory, disks and GPUs by this process and the machine (Linux).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace onnxtrain {

struct GpuReading {
  double utilization = 0;  // share of the last second or less in which a kernel ran
  int64_t memory_bytes = 0;
  double watts = 0, celsius = 0;
};

// Reads the GPUs by NVML, which is loaded at run time. Thread-compatible.
class GpuMonitor {
 public:
  // Returns null if the library cannot be loaded or lists no GPU.
  static std::unique_ptr<GpuMonitor> Create(const std::string& library = "libnvidia-ml.so.1");
  virtual ~GpuMonitor() = default;
  // Returns a reading per GPU of the machine, regardless of CUDA_VISIBLE_DEVICES. Unreported values are 0.
  virtual std::vector<GpuReading> Take() = 0;
};

// Rates are means since the previous reading. Unreported values are 0.
struct ResourceReading {
  double busy_cpus = 0;  // CPU time over wall time
  int64_t resident_bytes = 0;
  double machine_busy_cpus = 0;  // CPUs used by all processes
  double queued_share = 0;       // share of the time in which the calling thread was runnable but had no CPU
  double disk_read_rate = 0, disk_write_rate = 0;  // bytes per second from and to disks
  std::vector<GpuReading> gpus;                    // all of the machine that NVML knows; empty without it
};

// Thread-compatible; queued_share needs all calls from one thread. A reading takes some microseconds, with GPUs some
// milliseconds.
class ResourceMonitor {
 public:
  ResourceMonitor();
  // The first reading covers the time since construction.
  ResourceReading Take();

 private:
  // Totals since the start of the process or the machine.
  struct Totals {
    double cpu_seconds = 0, machine_cpu_seconds = 0, read_bytes = 0, written_bytes = 0, queued_seconds = 0;
  };
  static Totals ReadTotals();

  std::chrono::steady_clock::time_point taken_at_;
  Totals totals_;
  std::shared_ptr<GpuMonitor> gpus_;  // null if there are none
};

// Returns the peak resident memory of this process in bytes; 0 where the system does not report it.
int64_t PeakResidentBytes();

}  // namespace onnxtrain
