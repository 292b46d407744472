// Files that appear whole or not at all.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace onnxtrain {

// Writes a temporary file beside `path`, syncs it, renames it to `path` and syncs the folder. Whatever fails, a file
// that was at `path` before is still there, and no temporary file is left. Errors name the path.
absl::Status WriteFileAtomically(const std::string& path, std::span<const std::byte> bytes);

}  // namespace onnxtrain
