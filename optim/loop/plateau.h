// Reduces the learning rate when the evaluation metric stops improving, by the rules of PyTorch's ReduceLROnPlateau
// with a relative threshold.
#pragma once

#include <cstdint>
#include <limits>

#include "optim/config/optimizer.h"

namespace onnxtrain {

class Plateau {
 public:
  struct State {
    double factor = 1;
    double best = std::numeric_limits<double>::quiet_NaN();  // NaN: no evaluation yet
    double bad = 0, cooling = 0;                             // evaluations
  };

  // `spec`: of the schedule plateau. `lr`: the initial rate.
  Plateau(const ScheduleSpec& spec, double lr, bool maximize);

  // Takes the metric of one evaluation; NaN counts as no improvement. Returns the factor of `lr` from now on.
  double Step(double metric);

  const State& state() const { return state_; }
  void Restore(const State& state) { state_ = state; }

 private:
  bool Better(double metric) const;

  const double lr_, min_lr_, fall_, patience_, threshold_, cooldown_;
  const bool maximize_;
  State state_;
};

}  // namespace onnxtrain
