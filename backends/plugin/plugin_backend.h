// A backend that a library of another party provides by the C contract (frontend/plugin/onnxtrain_plugin.h).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "backends/backend.h"

namespace onnxtrain {

// Loads the library at `path` and makes its backend. `host` is the backend `cpu`, for buffers in the memory of the host
// and for the nodes that the library has no kernel for. Messages start with the path.
absl::StatusOr<std::unique_ptr<Backend>> CreatePluginBackend(const std::string& path, const BackendOptions& options,
                                                             std::unique_ptr<Backend> host);

}  // namespace onnxtrain
