// Files that give the order of classes.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace onnxtrain {

// Reads a name per line, in the order of the indices, or "name,index" on every line (the name in quotes where it has a
// comma). The indices must be 0 to n - 1. Blank lines do not count. Errors name the file and the row.
absl::StatusOr<std::vector<std::string>> ReadClassMap(const std::string& path);

}  // namespace onnxtrain
