#include "optim/step/loss_scale.h"

#include <limits>

namespace onnxtrain {

LossScale NextLossScale(const LossScaleSpec& spec, const LossScale& now, Val finite) {
  if (!spec.dynamic) return now;
  Builder& b = now.scale.b();
  const Val zero = b.Scalar(DType::kInt64, 0), applied = now.applied + 1.0;
  const Val due = Equal(applied, b.Scalar(DType::kInt64, static_cast<double>(spec.interval)));
  const Val grown = now.scale * spec.growth;
  const Val infinity = b.Scalar(now.scale.dtype(), std::numeric_limits<double>::infinity());
  const Val larger = Where(Less(grown, infinity), grown, now.scale);
  return {.scale = Where(finite, Where(due, larger, now.scale), now.scale * spec.backoff),
          .applied = Where(finite, Where(due, zero, applied), zero)};
}

}  // namespace onnxtrain
