// Imports straight-through estimators.
#pragma once

#include <string_view>

#include "frontend/ops/builder.h"

namespace onnxtrain {

// Exporters drop PyTorch's detach(), so x + (q(x) − x).detach() is exported as x + (q − x), which would have the
// gradient of q: zero if q rounds, selects or compares. If a + b (`op` Add) or a − b (Sub) is x + (q − x), x − (x − q)
// or (q + x) − x, and q depends on x through an operator without a gradient, returns the sum or difference with a
// gradient to x only (Bengio et al., 2013, arXiv:1308.3432). Otherwise returns an invalid Val.
Val ImportStraightThrough(std::string_view op, Val a, Val b);

}  // namespace onnxtrain
