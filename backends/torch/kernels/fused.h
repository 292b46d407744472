#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "backends/torch/fuse/generate.h"
#include "backends/torch/kernel.h"

namespace onnxtrain::aten {

// The kernel of a torch.Fused node over these addresses.
absl::StatusOr<GeneratedKernel> GenerateFused(const Args& a);
absl::StatusOr<BatchKernel> GenerateFusedBatch(const Args& a);

// One launch for nodes whose batched kernels have the same source, none of which reads or writes what another writes.
Run PrepareBatch(std::span<const Args> nodes, std::span<const BatchKernel> kernels);

}  // namespace onnxtrain::aten
