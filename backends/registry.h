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

std::vector<std::string> BackendNames();  // names of installed libraries: "cpu", "torch"

// Returns true if the name is the path of a plugin (frontend/plugin/onnxtrain_plugin.h): it has a slash or ".so".
bool IsPluginPath(std::string_view name);

// Returns true if the machine has an NVIDIA GPU, usable or not.
bool MayHaveGpu();

// Creates the backend `name`: one of BackendNames(), the path of a plugin (options.device may then be "auto"), or
// "auto", which is torch if there is a usable CUDA device and cpu otherwise. Libraries read the environment (thread
// count, wait policy) when they are loaded, so set it before. "torch" on a CUDA device is
// libonnxtrain_backend_torch_cuda.so if installed; a process keeps the first of the two torch libraries that it loads.
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(std::string_view name, const BackendOptions& options);

}  // namespace onnxtrain
