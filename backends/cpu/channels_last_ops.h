// Operators over tensors whose channels are their last axis: [N,…,C].
#pragma once

#include <vector>

#include "frontend/ops/row.h"

namespace onnxtrain::cpu {

// [N,C,…] → [N,…,C], and back. Shapes of rank 3 and more.
Shape ChannelsLastShape(const Shape& shape);
Shape ChannelsFirstShape(const Shape& shape);

std::vector<OpRow> ChannelsLastRows();

}  // namespace onnxtrain::cpu
