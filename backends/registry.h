// Loads backends by name or path: libonnxtrain_backend_NAME.so, with RTLD_LOCAL, from the folder of the core library or
// $ORIGIN/../lib, once per process. No other code knows the names.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"

namespace onnxtrain {

std::vector<std::string> BackendNames();  // "cpu", "torch": those whose library is installed

// Is the name the path of a library of another party (frontend/plugin/onnxtrain_plugin.h)? One with a slash, or ".so".
bool IsPluginPath(std::string_view name);

// Has the machine an NVIDIA GPU, usable or not?
bool MayHaveGpu();

// `name` is one of BackendNames(), the path of a library, whose options.device may be "auto", or "auto": torch where
// there is a usable CUDA device, else cpu. Set the environment (thread count, wait policy) before: the libraries read
// it when they are loaded. "torch" on a CUDA device is libonnxtrain_backend_torch_cuda.so where that is installed; a
// process keeps the first of the two that it loads.
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(std::string_view name, const BackendOptions& options);

}  // namespace onnxtrain
