// Straight-through estimators as exporters write them.
#pragma once

#include "frontend/ops/builder.h"

namespace onnxtrain {

// Exporters drop PyTorch's detach(), and x + (q(x) − x).detach() arrives as the sum of x and q − x, whose gradient
// would be that of q: none where q rounds, selects or compares. Returns the sum a + b with a gradient that flows to x
// alone (Bengio et al., 2013, arXiv:1308.3432) where one operand is q − x, the other x, and q depends on x through an
// operator without a gradient; an invalid Val otherwise.
Val ImportStraightThrough(Val a, Val b);

}  // namespace onnxtrain
