// The one place where oneDNN's exceptions end.
#pragma once

#include <functional>

#include "absl/status/status.h"

namespace onnxtrain::cpu {

// Runs f and turns a dnnl::error, or memory running out, into a Status.
absl::Status CatchDnnlErrors(const std::function<void()>& f);

// Before oneDNN makes a primitive: where no memory can be mapped for its code, oneDNN writes it to address 0.
absl::Status CheckJitMemory();

}  // namespace onnxtrain::cpu
