// Straight-through estimators as exporters write them.
#pragma once

#include <string_view>

#include "frontend/ops/builder.h"

namespace onnxtrain {

// Exporters drop PyTorch's detach(), and x + (q(x) − x).detach() arrives as the sum of x and q − x, whose gradient
// would be that of q: none where q rounds, selects or compares. Returns a + b (`op` Add) or a − b (Sub) with a gradient
// that flows to x alone (Bengio et al., 2013, arXiv:1308.3432) where it is x + (q − x), x − (x − q) or (q + x) − x, and
// q depends on x through an operator without a gradient; an invalid Val otherwise.
Val ImportStraightThrough(std::string_view op, Val a, Val b);

}  // namespace onnxtrain
