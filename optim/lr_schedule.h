// The learning rate as a function of applied updates, on the device: no host value changes from step to step.
#pragma once

#include "frontend/ops/builder.h"
#include "optim/optimizer.h"

namespace onnxtrain {

// The same function as ScheduleFactor, as an expression over `step` (a float scalar: updates applied so far).
Val ScheduleFactor(const ScheduleSpec& schedule, double lr, Val step);

}  // namespace onnxtrain
