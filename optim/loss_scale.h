// Dynamic loss scaling, as PyTorch's GradScaler does it: gradients of a loss times S are large enough for f16; where S was too
// large, some are not finite and the update is skipped.
#pragma once

#include "frontend/ops/builder.h"

namespace onnxtrain {

struct LossScaleSpec {
  double initial = 65536;
  bool dynamic = true;        // false: S stays
  double growth = 2, backoff = 0.5;
  int64_t interval = 2000;    // applied updates in a row before S grows
};

// S (a float scalar) and how many updates in a row have been applied since it last changed (i64).
struct LossScale {
  Val scale, applied;
};

// After an update: `finite` says whether it was applied. S grows only to finite values.
LossScale NextLossScale(const LossScaleSpec& spec, const LossScale& now, Val finite);

}  // namespace onnxtrain
