#include "optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace onnxtrain {
namespace {

// Warm-up is t/w over the first w updates, counted from 1; then the decay runs from 1 to min over the rest.
struct Plan {
  double warmup;  // updates
  double rest;    // updates after the warm-up
  double floor;   // last factor
};

Plan PlanOf(const ScheduleSpec& s, double lr) {
  const auto total = static_cast<double>(s.total_steps);
  const double warmup = s.warmup < 1 ? std::floor(s.warmup * total) : s.warmup;
  return {warmup, std::max(1.0, total - warmup), lr > 0 ? s.min_lr / lr : 0};
}

// How much of the way from `floor` to 1 is left at progress p in [0, 1].
double Left(const std::string& name, double p) {
  if (name == "linear") return 1 - p;
  if (name == "cosine") return std::pow(std::cos(p * std::numbers::pi / 2), 2);  // = (1 + cos πp)/2, exact near the end
  return 1;
}

Val Left(const std::string& name, Val p) {
  if (name == "linear") return 1.0 - p;
  const Val c = p.b().Op("Cos", {p * (std::numbers::pi / 2)});
  return c * c;
}

}  // namespace

double ScheduleFactor(const ScheduleSpec& schedule, double lr, int64_t step) {
  const Plan plan = PlanOf(schedule, lr);
  const auto t = static_cast<double>(step);
  if (t < plan.warmup) return (t + 1) / plan.warmup;
  if (schedule.name == "constant") return 1;
  return plan.floor + (1 - plan.floor) * Left(schedule.name, std::min(1.0, (t - plan.warmup) / plan.rest));
}

Val ScheduleFactor(const ScheduleSpec& schedule, double lr, Val step) {
  Builder& b = step.b();
  const Plan plan = PlanOf(schedule, lr);
  const Val one = b.Scalar(step.dtype(), 1);
  Val factor = one;
  if (schedule.name != "constant") {
    const Val progress = b.Op("Min", {one, (step - plan.warmup) / plan.rest});
    factor = Left(schedule.name, progress) * (1 - plan.floor) + plan.floor;
  }
  if (plan.warmup <= 0) return factor;
  return Where(Less(step, b.Scalar(step.dtype(), plan.warmup)), (step + 1.0) / plan.warmup, factor);
}

}  // namespace onnxtrain
