// What is done with the gradients: rule, learning rate and its schedule, decay, clipping.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "optim/config/options.h"

namespace onnxtrain {

// A number that the rule has a default for: see Resolved in rules/rule.h.
inline constexpr double kRuleDefault = std::numeric_limits<double>::quiet_NaN();

class OnnxRule;  // onnx_functions.h

struct OptimizerSpec {
  std::string rule = "adamw";                 // of AllRules() in rules/rule.h, or onnx:FILE
  std::shared_ptr<const OnnxRule> onnx_rule;  // of onnx:FILE; else null
  double lr = 1e-3;
  double momentum = kRuleDefault;  // sgd, lars, rmsprop: 0, lars: 0.9
  double dampening = 0;            // sgd with momentum
  bool nesterov = false;           // sgd with momentum and no dampening
  double beta1 = kRuleDefault, beta2 = kRuleDefault, eps = kRuleDefault;
  double weight_decay = 0;        // decoupled for adamw, lamb, lion, adafactor; L2 for the others
  std::string no_decay = "auto";  // auto (rank ≤ 1 or a name ending in bias), none, or a glob (weight_globs.h)
  double max_grad_norm = 1.0;     // of the global norm; 0: never
  double clip_value = 0;          // then every element lies within ± this; 0: anywhere
  double agc = 0;                 // before that, adaptively: see clip.h; 0: not
  std::map<std::string, int64_t> output_axes;  // for agc, as in clip.h; the session fills it in
  double ema_decay = 0;                        // of a moving average of the weights beside them; 0: none is kept
  std::map<std::string, double> lr_factors;    // of `lr`, by weight name; where absent 1
};

struct ScheduleSpec {
  std::string name = "constant";  // of AllSchedules() in lr_schedule.h
  Options options;                // its own: see ParseSchedule; absent: its default
  double warmup = 0;              // steps, or a fraction of total_steps when < 1
  double min_lr = 0;  // no schedule goes below it after the warm-up; where several fall to an end, the end. Absolute
  int64_t total_steps = 0;   // updates of the whole run
  bool host_factor = false;  // the host may multiply the rate (Session::SetPlateau) under any schedule
};

// The learning rate of update `step` (0-based) as a factor of OptimizerSpec::lr. Pure.
double ScheduleFactor(const ScheduleSpec& schedule, double lr, int64_t step);

}  // namespace onnxtrain
