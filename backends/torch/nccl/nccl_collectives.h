// Collectives over NCCL, on the memory of one GPU per rank.
//
// NCCL itself waits for ranks without end, and does not say which one is missing. Operations therefore wait for the
// device with the time-out of a group on the hosts, which finds ranks that are gone, and which gets to know the errors.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "backends/collectives.h"
#include "backends/torch/nccl/nccl.h"

namespace onnxtrain::aten {

// The queue of a device's work, as its engine of collectives uses it.

class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  // Calls `start` with the queue, a cudaStream_t, while the device is the current one.
  virtual void Submit(const std::function<void(void* stream)>& start) = 0;
  // Has what was in the queue at the last Mark been computed? Returns at once.
  virtual absl::Status Mark() = 0;
  virtual absl::StatusOr<bool> ReachedMark() = 0;
};

// Meets the ranks of `host`, all of which call it. `nccl`: an error where this rank has none. Null, on all ranks alike,
// where they cannot meet: a warning says why. An error of `host` is returned. `host` must outlive the group.
absl::StatusOr<std::unique_ptr<Collectives>> MeetOverNccl(const absl::StatusOr<const Nccl*>& nccl,
                                                          std::unique_ptr<DeviceQueue> queue, Collectives& host);

}  // namespace onnxtrain::aten
