// The queue of a device's work, as its engine of collectives uses it.
#pragma once

#include <functional>

#include "absl/status/statusor.h"

namespace onnxtrain::aten {

class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  // Calls `start` with the queue, a cudaStream_t, while the device is the current one.
  virtual void Submit(const std::function<void(void* stream)>& start) = 0;
  // Has what was in the queue at the last Mark been computed? Returns at once.
  virtual absl::Status Mark() = 0;
  virtual absl::StatusOr<bool> ReachedMark() = 0;
};

}  // namespace onnxtrain::aten
