// Tensors that hold the same elements for each index of some axes, as constants that were expanded for a batch.
#pragma once

#include <optional>
#include <vector>

#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

// Returns the elements whose indices are below the extents, none of which is larger than the tensor's.
HostTensor TakeCorner(const HostTensor& tensor, Shape shape);

// Returns the tensor with extents of 1 along these axes; nothing where it does not repeat along them.
std::optional<HostTensor> Unrepeat(const HostTensor& tensor, const std::vector<bool>& axes);

// Broadcasts extents of 1.
HostTensor Repeat(const HostTensor& base, Shape shape);

}  // namespace onnxtrain
