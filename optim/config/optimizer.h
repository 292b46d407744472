// Defines how gradients update the weights: rule, learning rate and its schedule, decay, clipping.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "frontend/graph/type.h"
#include "optim/config/options.h"

namespace onnxtrain {

// Selects the rule's default of a number: see Resolved in rules/rule.h.
inline constexpr double kRuleDefault = std::numeric_limits<double>::quiet_NaN();

class OnnxRule;  // onnx_functions.h

// The projection of gradients by galore_adamw.
struct GaloreSpec {
  int64_t rank = 128;
  int64_t every = 200;  // updates between two projections
  double scale = 0.25;  // of the updates of projected weights
};

struct OptimizerSpec {
  std::string rule = "adamw";                 // a name of NamedRules() in rules/rule.h, or onnx:FILE
  std::shared_ptr<const OnnxRule> onnx_rule;  // set for onnx:FILE; else null
  double lr = 1e-3;
  double momentum = kRuleDefault;  // defaults: sgd and rmsprop 0, lars 0.9, muon 0.95
  double dampening = 0;            // sgd with momentum
  bool nesterov = false;           // sgd with momentum and no dampening
  double beta1 = kRuleDefault, beta2 = kRuleDefault, eps = kRuleDefault;
  GaloreSpec galore;
  double weight_decay = 0;        // decoupled for adamw, lamb, lion, adafactor, muon, galore_adamw; L2 for the others
  std::string no_decay = "auto";  // auto (rank ≤ 1 or a name ending in bias), none, or a glob (weight_globs.h)
  double max_grad_norm = 1.0;     // limit of the global norm; 0: none
  double clip_value = 0;          // applied after that: limits every element to ± this; 0: no limit
  double agc = 0;                 // adaptive clipping, applied first: see gradient_scaling.h; 0: off
  std::map<std::string, int64_t> output_axes;  // output axes for agc, as in gradient_scaling.h; set by the session
  std::set<std::string> tables;                // FindTables of the model (groups.h); set by the session
  // Updates each weight as soon as its gradient is known, where an update is one micro-batch (training_graph.h).
  bool in_backward = false;
  double ema_decay = 0;                      // decay of a moving average of the weights; 0: no average
  DType weight_dtype = DType::kFloat32;      // kBFloat16: of trained matrices, without float32 masters
  std::map<std::string, double> lr_factors;  // factors of `lr`, by weight name; 1 if absent
};

struct ScheduleSpec {
  std::string name = "constant";  // a name of AllSchedules() in lr_schedule.h
  Options options;                // options of the schedule: see ParseSchedule; absent: its default
  double warmup = 0;              // steps, or a fraction of total_steps when < 1
  double min_lr = 0;              // absolute minimum after the warm-up; the end value of schedules that fall to an end
  int64_t total_steps = 0;        // updates of the whole run
  bool host_factor = false;       // the host may multiply the rate (Session::SetPlateau) under any schedule
};

// Returns the learning rate of update `step` (0-based) as a factor of OptimizerSpec::lr. Pure.
double ScheduleFactor(const ScheduleSpec& schedule, double lr, int64_t step);

}  // namespace onnxtrain
