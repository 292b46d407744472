// Moments and bias correction of the Adam family.
#pragma once

#include <cmath>

#include "optim/step/rules/rule.h"

namespace onnxtrain {

// 1 − βᵗ without the cancellation that float32 would suffer for β near 1.
inline Val BiasCorrection(double beta, Val t) { return -t.b().Op("Expm1", {t * std::log(beta)}); }

struct AdamMoments {
  Val m, v;  // state 0 and 1 after this gradient
};

inline AdamMoments UpdateMoments(const RuleContext& c, Val grad) {
  const OptimizerSpec& s = c.spec;
  return {c.state[0] * s.beta1 + grad * (1 - s.beta1), c.state[1] * s.beta2 + grad * grad * (1 - s.beta2)};
}

}  // namespace onnxtrain
