#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "backends/torch/fuse/generate.h"
#include "backends/torch/kernel.h"

namespace onnxtrain::aten {

// Generate the kernel of a torch.Fused node, alone or in a batch, for the alignment of its addresses.
absl::StatusOr<GeneratedKernel> GenerateFused(const Args& a);
absl::StatusOr<BatchKernel> GenerateFusedBatch(const Args& a);

// Prepares one launch for independent nodes whose batched kernels have the same source.
Run PrepareBatch(std::span<const Args> nodes, std::span<const BatchKernel> kernels);

}  // namespace onnxtrain::aten
