// The one place where oneDNN's exceptions end.
#pragma once

#include <functional>

#include "absl/status/status.h"

namespace onnxtrain::cpu {

// Runs f and turns a dnnl::error, or memory running out, into a Status.
absl::Status Guard(const std::function<void()>& f);

}  // namespace onnxtrain::cpu
