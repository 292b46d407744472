// How much memory ATen's kernels allocate for themselves.
#pragma once

#include <cstddef>
#include <functional>

#include <c10/core/Device.h>

namespace onnxtrain::aten {

// The most bytes on the device that were allocated by `run`, on this thread, and not yet freed, at any one time.
size_t PeakScratch(c10::Device device, const std::function<void()>& run);

}  // namespace onnxtrain::aten
