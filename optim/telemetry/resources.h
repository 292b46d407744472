// What this process uses of the machine. Linux.
#pragma once

#include <chrono>
#include <cstdint>

namespace onnxtrain {

struct ResourceReading {
  double busy_cpus = 0;        // CPU time over wall time since the reading before
  int64_t resident_bytes = 0;  // now; 0 where the system does not report it
};

// Thread-compatible. A reading takes some microseconds.
class ResourceMonitor {
 public:
  ResourceMonitor();
  // The first reading covers the time since construction.
  ResourceReading Take();

 private:
  std::chrono::steady_clock::time_point taken_at_;
  double cpu_seconds_;
};

// Returns the peak resident memory of this process in bytes; 0 where the system does not report it.
int64_t PeakResidentBytes();

}  // namespace onnxtrain
