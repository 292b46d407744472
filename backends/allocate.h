// Checked allocation: refuses what does not fit, instead of a process that is killed later.
#pragma once

#include <memory>
#include <string_view>

#include "backends/backend.h"

namespace onnxtrain {

// Fails with kResourceExhausted where the backend knows that less memory is free. The message names `what` needs it (a
// plural: "activations").
absl::Status CheckFits(const Backend& backend, size_t bytes, std::string_view what);

// Backend::Allocate after CheckFits.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateChecked(Backend& backend, size_t bytes, std::string_view what);

}  // namespace onnxtrain
