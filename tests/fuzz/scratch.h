// What all fuzzing targets share.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace onnxtrain {

inline constexpr int64_t kMaxFuzzBytes = int64_t{1} << 24;  // of what a file declares

// Returns whether the status is OK. Checks the form of every error: one line that says something.
bool Accepts(const absl::Status& status);

// Writes a file of a folder of the process, for readers that open files by path, and returns its path.
std::string WriteScratch(const std::string& name, std::string_view bytes);

}  // namespace onnxtrain
