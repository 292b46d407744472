// Dynamic loss scaling, by the rule of PyTorch's GradScaler. The loss is multiplied by S so that float16 gradients do
// not underflow. An update whose gradient is not finite is skipped and S shrinks.
#pragma once

#include "frontend/ops/builder.h"

namespace onnxtrain {

struct LossScaleSpec {
  double initial = 65536;
  bool dynamic = true;  // false: S is constant
  double growth = 2, backoff = 0.5;
  int64_t interval = 2000;  // applied updates in a row before S grows
};

// S (float scalar) and the number of updates applied since S last changed (i64 scalar).
struct LossScale {
  Val scale, applied;
};

// Returns the state after an update; `finite` (bool scalar): the update was applied. S never grows beyond the largest
// finite float.
LossScale NextLossScale(const LossScaleSpec& spec, const LossScale& now, Val finite);

}  // namespace onnxtrain
