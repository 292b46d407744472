#pragma once

#include "absl/status/statusor.h"
#include "backends/torch/fuse/generate.h"
#include "backends/torch/kernel.h"

namespace onnxtrain::aten {

// The kernel of a torch.Fused node over these addresses.
absl::StatusOr<GeneratedKernel> GenerateFused(const Args& a);

}  // namespace onnxtrain::aten
