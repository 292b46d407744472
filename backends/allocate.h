// Memory that is refused by name instead of being promised and killed later.
#pragma once

#include <memory>
#include <string_view>

#include "backends/backend.h"

namespace onnxtrain {

// Is that much memory free, as far as the backend knows? kResourceExhausted
// names `what` needs it (a plural: "activations").
absl::Status CheckFits(const Backend& backend, size_t bytes, std::string_view what);

// Backend::Allocate of what fits.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateChecked(Backend& backend, size_t bytes, std::string_view what);

}  // namespace onnxtrain
