// What the GPUs of the machine are busy with, by NVML, which is loaded at run time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace onnxtrain {

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

}  // namespace onnxtrain
