// The queues and memory of UploadRing on a CUDA device.
#pragma once

#include <memory>

#include <c10/core/Device.h>

#include "backends/torch/upload_ring.h"

namespace onnxtrain::aten {

std::unique_ptr<UploadDevice> MakeUploadDevice(c10::Device device);

}  // namespace onnxtrain::aten
