// Defines learning rate schedules as functions of the number of applied updates, computed on the device.
//
// t counts applied updates from 0. During a warm-up of w updates the factor is (t+1)/w. After it, u = t − w and p =
// min(1, u / (total − w)). `min` is the lowest rate divided by the base rate. Schedules that exist in
// torch.optim.lr_scheduler have PyTorch's formulas.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/ops/builder.h"
#include "optim/config/optimizer.h"
#include "optim/config/options.h"

namespace onnxtrain {

struct ScheduleRow {
  std::string_view name;
  std::string_view text;  // formula and options, for people
  std::vector<NumberOption> options;
  bool own_warmup = false;  // includes a warm-up; an additional one is an error
  double (*number)(const ScheduleSpec& spec, double min, double rest, double u);
  Val (*graph)(const ScheduleSpec& spec, double min, double rest, Val u);
};

// Returns all schedules. The factor of plateau is 1 here: the host sets it after evaluations (device_scalar::kPlateau,
// training_graph.h).
std::span<const ScheduleRow> AllSchedules();

// Parses "cosine", "step:size=1000,gamma=0.5", "multistep:at=100/200". Errors name the schedule or option that is
// unknown, out of range or missing. Warm-up, lowest rate and total keep the defaults of ScheduleSpec.
absl::StatusOr<ScheduleSpec> ParseSchedule(const std::string& text);

// Returns the factor of the base rate `lr`; `step` is t, a float scalar.
Val ScheduleFactor(const ScheduleSpec& schedule, double lr, Val step);

// Reduces the learning rate when the evaluation metric stops improving, by the rules of PyTorch's ReduceLROnPlateau
// with a relative threshold.
class Plateau {
 public:
  struct State {
    double factor = 1;
    double best = std::numeric_limits<double>::quiet_NaN();  // NaN: no evaluation yet
    double bad = 0, cooling = 0;                             // numbers of evaluations
  };

  // `spec` must have the schedule plateau. `lr`: the initial rate.
  Plateau(const ScheduleSpec& spec, double lr, bool maximize);

  // Processes the metric of one evaluation; NaN counts as no improvement. Returns the new factor of `lr`.
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
