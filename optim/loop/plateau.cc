#include "optim/loop/plateau.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace onnxtrain {

Plateau::Plateau(const ScheduleSpec& spec, double lr, bool maximize)
    : lr_(lr),
      min_lr_(spec.min_lr),
      fall_(OptionOr(spec.options, "factor", 0.1)),
      patience_(OptionOr(spec.options, "patience", 10)),
      threshold_(OptionOr(spec.options, "threshold", 1e-4)),
      cooldown_(OptionOr(spec.options, "cooldown", 0)),
      maximize_(maximize) {}

bool Plateau::Better(double metric) const {
  const double worst = (maximize_ ? -1 : 1) * std::numeric_limits<double>::infinity();
  const double best = std::isnan(state_.best) ? worst : state_.best;
  return maximize_ ? metric > best * (1 + threshold_) : metric < best * (1 - threshold_);
}

double Plateau::Step(double metric) {
  const bool better = Better(metric);
  if (better) state_.best = metric;
  state_.bad = better ? 0 : state_.bad + 1;
  if (state_.cooling > 0) {
    --state_.cooling;
    state_.bad = 0;
  }
  if (state_.bad <= patience_) return state_.factor;
  state_.cooling = cooldown_;
  state_.bad = 0;
  const double lower = std::max(lr_ * state_.factor * fall_, min_lr_);
  constexpr double kLeastChange = 1e-8;
  if (lr_ * state_.factor - lower > kLeastChange) state_.factor = lower / lr_;
  return state_.factor;
}

}  // namespace onnxtrain
