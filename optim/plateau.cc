#include "optim/plateau.h"

#include <algorithm>
#include <limits>

namespace onnxtrain {

Plateau::Plateau(const ScheduleSpec& spec, double lr, bool maximize)
    : lr_(lr),
      min_lr_(spec.min_lr),
      fall_(OptionOr(spec.options, "factor", 0.1)),
      patience_(OptionOr(spec.options, "patience", 10)),
      threshold_(OptionOr(spec.options, "threshold", 1e-4)),
      cooldown_(OptionOr(spec.options, "cooldown", 0)),
      maximize_(maximize),
      best_((maximize ? -1 : 1) * std::numeric_limits<double>::infinity()) {}

bool Plateau::Better(double metric) const {
  return maximize_ ? metric > best_ * (1 + threshold_) : metric < best_ * (1 - threshold_);
}

double Plateau::Step(double metric) {
  const bool better = Better(metric);
  if (better) best_ = metric;
  bad_ = better ? 0 : bad_ + 1;
  if (cooling_ > 0) {
    --cooling_;
    bad_ = 0;
  }
  if (bad_ <= patience_) return factor_;
  cooling_ = cooldown_;
  bad_ = 0;
  const double lower = std::max(lr_ * factor_ * fall_, min_lr_);
  constexpr double kLeastChange = 1e-8;
  if (lr_ * factor_ - lower > kLeastChange) factor_ = lower / lr_;
  return factor_;
}

}  // namespace onnxtrain
