// What stands around every use of ATen: no autograd, one device, one queue of its work.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>

namespace onnxtrain::aten {

// The queue of all work on a device: runs, copies and allocations are ordered by it. It is not the default stream,
// whose work cannot be recorded (replay.h). Not for the CPU.
c10::Stream DeviceStream(c10::Device device);

class DeviceScope {
 public:
  explicit DeviceScope(c10::Device device);

 private:
  c10::InferenceMode inference_;
  c10::OptionalDeviceGuard device_;
  c10::OptionalStreamGuard stream_;
};

// Waits for the device's queue.
void SynchronizeDevice(c10::Device device);

}  // namespace onnxtrain::aten
