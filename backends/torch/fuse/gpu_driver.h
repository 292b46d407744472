// The CUDA driver, loaded when it is first needed.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "absl/status/statusor.h"

namespace onnxtrain::aten {

// The part of the driver that starts kernels. Handles are the driver's.
class GpuDriver {
 public:
  virtual ~GpuDriver() = default;
  virtual absl::StatusOr<void*> LoadModule(const std::string& module) = 0;  // never unloaded
  virtual absl::StatusOr<void*> FindFunction(void* module, const std::string& name) = 0;
  // Queues a launch on the current stream. `argument` is copied before the call returns.
  virtual absl::Status Launch(void* function, unsigned blocks, unsigned threads, std::span<void* const> argument) = 0;
};

// Uses the context that is current when it is called. `current_stream` returns a CUstream.
absl::StatusOr<std::unique_ptr<GpuDriver>> LoadGpuDriver(std::function<void*()> current_stream);

}  // namespace onnxtrain::aten
