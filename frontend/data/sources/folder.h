// Lists folders of samples.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace onnxtrain {

// Returns the names in a folder, sorted by their bytes, without hidden ones (".DS_Store"). Fails, naming the folder,
// where it cannot be read.
absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path);

}  // namespace onnxtrain
