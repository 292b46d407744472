// Small text files, whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace onnxtrain {

// A regular file of at most `limit` bytes. The error names the path.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, int64_t limit);
// Atomically: a temporary file beside it, fsync, rename. A folder at `path`, a full disk, … are errors that name it.
absl::Status WriteTextFile(const std::string& path, std::string_view text);

}  // namespace onnxtrain
