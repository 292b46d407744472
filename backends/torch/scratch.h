// Measures the memory that ATen's kernels allocate.
#pragma once

#include <cstddef>
#include <functional>

#include <c10/core/Device.h>

namespace onnxtrain::aten {

// Returns the peak bytes on the device that `run` allocates on this thread.
size_t PeakScratch(c10::Device device, const std::function<void()>& run);

}  // namespace onnxtrain::aten
