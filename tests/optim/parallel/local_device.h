// A device with memory of its own and an engine for it: the torch backend on the CPU, with local_nccl.h.
#pragma once

#include <memory>
#include <string>

#include "backends/backend.h"

namespace onnxtrain {

inline constexpr char kLocalDevice[] = "device";

// The backend of that name; of kLocalDevice, the device. With one thread.
std::unique_ptr<Backend> MakeTestBackend(const std::string& name);

}  // namespace onnxtrain
