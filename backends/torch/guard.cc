#include "backends/torch/guard.h"

#include <map>
#include <mutex>

#include <c10/core/impl/VirtualGuardImpl.h>

namespace onnxtrain::aten {

c10::Stream DeviceStream(c10::Device device) {
  static std::mutex mutex;
  static auto* streams = new std::map<c10::DeviceIndex, c10::Stream>;
  const c10::impl::VirtualGuardImpl guard(device.type());
  if (device.index() < 0) device = guard.getDevice();
  const std::lock_guard lock(mutex);
  const auto it = streams->find(device.index());
  if (it != streams->end()) return it->second;
  return streams->emplace(device.index(), guard.getStreamFromGlobalPool(device, /*isHighPriority=*/true)).first->second;
}

DeviceScope::DeviceScope(c10::Device device) : device_(device) {
  if (!device.is_cpu()) stream_.reset_stream(DeviceStream(device));
}

void SynchronizeDevice(c10::Device device) {
  if (!device.is_cpu()) DeviceStream(device).synchronize();
}

}  // namespace onnxtrain::aten
