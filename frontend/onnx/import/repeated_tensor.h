// Handles tensors that repeat the same elements along some axes, such as constants that were expanded for a batch.
#pragma once

#include <optional>
#include <vector>

#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

// Returns the elements with indices below the extents of `shape`, which must not exceed those of the tensor.
HostTensor TakeCorner(const HostTensor& tensor, Shape shape);

// Reduces the marked axes to extent 1. Returns nullopt if the elements differ along one of them.
std::optional<HostTensor> Unrepeat(const HostTensor& tensor, const std::vector<bool>& axes);

// Broadcasts the axes of `base` that have extent 1 to `shape`.
HostTensor Repeat(const HostTensor& base, Shape shape);

}  // namespace onnxtrain
