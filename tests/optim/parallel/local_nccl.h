// Stands in for NCCL: ranks are threads of one process, and the device's memory is that of the host. Operations end
// before they return, so that the queue of the device is empty.
#pragma once

#include "backends/torch/nccl/nccl_collectives.h"

namespace onnxtrain {

// An interface like NCCL's. Groups are apart by their unique ids.
aten::Nccl LocalNccl();

class LocalQueue : public aten::DeviceQueue {
 public:
  void Submit(const std::function<void(void* stream)>& start) override { start(nullptr); }
  absl::Status Mark() override { return absl::OkStatus(); }
  absl::StatusOr<bool> ReachedMark() override { return true; }
};

}  // namespace onnxtrain
