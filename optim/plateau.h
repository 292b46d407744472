// --lr-scheduler plateau: the rate falls when evaluations get no better. The rules of PyTorch's ReduceLROnPlateau, with a
// relative threshold.
#pragma once

#include <cstdint>

#include "optim/optimizer.h"

namespace onnxtrain {

class Plateau {
 public:
  // `spec` is a plateau, `lr` the rate that it begins with.
  Plateau(const ScheduleSpec& spec, double lr, bool maximize);

  // After an evaluation whose metric is this. Gives the factor of the rate from now on.
  double Step(double metric);

 private:
  bool Better(double metric) const;

  const double lr_, min_lr_, fall_, patience_, threshold_, cooldown_;
  const bool maximize_;
  double factor_ = 1, best_;
  double bad_ = 0, cooling_ = 0;  // evaluations
};

}  // namespace onnxtrain
