// Reduces the learning rate when the evaluation metric stops improving, by the rules of PyTorch's ReduceLROnPlateau
// with a relative threshold.
#pragma once

#include <cstdint>

#include "optim/optimizer.h"

namespace onnxtrain {

class Plateau {
 public:
  // `spec`: of the schedule plateau. `lr`: the initial rate.
  Plateau(const ScheduleSpec& spec, double lr, bool maximize);

  // Takes the metric of one evaluation; NaN counts as no improvement. Returns the factor of `lr` from now on.
  double Step(double metric);

 private:
  bool Better(double metric) const;

  const double lr_, min_lr_, fall_, patience_, threshold_, cooldown_;
  const bool maximize_;
  double factor_ = 1, best_;
  double bad_ = 0, cooling_ = 0;  // evaluations
};

}  // namespace onnxtrain
