// A backend that a plugin provides through the C interface of frontend/plugin/onnxtrain_plugin.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "backends/backend.h"

namespace onnxtrain {

// Loads the plugin at `path` and creates its backend. `host` is the backend `cpu`, for buffers in host memory and for
// nodes for which the plugin has no kernel. Messages start with the path.
absl::StatusOr<std::unique_ptr<Backend>> CreatePluginBackend(const std::string& path, const BackendOptions& options,
                                                             std::unique_ptr<Backend> host);

}  // namespace onnxtrain
