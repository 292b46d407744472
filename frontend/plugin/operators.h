// Operators of other domains, from libraries of other parties.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace onnxtrain {

// Adds the operators of a library to the tables, for good: models that use them can be imported from now on. A library
// that is loaded already is left alone. Fails, adding nothing, where the library cannot be loaded, is of another
// version, exports no operators, or has an operator that is known already or is incomplete. Messages
// start with the path. Thread-safe.
absl::Status LoadPlugin(const std::string& path);
absl::Status LoadPlugins(const std::vector<std::string>& paths);

}  // namespace onnxtrain
