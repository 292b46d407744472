// Registers the operators of plugins, which belong to domains other than ai.onnx.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace onnxtrain {

// Add the operators of plugins to the operator tables for the life of the process, so that models with them can be
// imported. Plugins that are already loaded are skipped. Fail, and add none of the plugin's operators, if it cannot be
// loaded, has another version, exports no operators, or has an operator that is incomplete or already known. Messages
// start with the path. Thread-safe.
absl::Status LoadPlugin(const std::string& path);
absl::Status LoadPlugins(const std::vector<std::string>& paths);

}  // namespace onnxtrain
