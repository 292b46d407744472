// The learning rate as a function of applied updates, on the device: no host value changes from step to step.
//
// t counts applied updates from 0. During a warm-up of w updates the factor is (t+1)/w; u = t − w counts what follows and
// p = u / (total − w), at most 1, is the share of it. `min` is the lowest rate ÷ the rate. The formulas are those of PyTorch's
// torch.optim.lr_scheduler where it has the schedule.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/ops/builder.h"
#include "optim/optimizer.h"
#include "optim/options.h"

namespace onnxtrain {

struct ScheduleRow {
  std::string_view name;
  std::string_view text;    // formula and options, for people
  std::vector<NumberOption> options;
  bool own_warmup = false;  // rises by itself: --warmup would make it rise twice
  double (*number)(const ScheduleSpec& spec, double min, double rest, double u);
  Val (*graph)(const ScheduleSpec& spec, double min, double rest, Val u);
};

// plateau is 1 here: its factor follows from evaluations, in a slot of its own (slot::kPlateau in training_graph.h).
std::span<const ScheduleRow> AllSchedules();

// "cosine", "step:size=1000,gamma=0.5", "multistep:at=100/200". An error names what is unknown, out of range or missing.
// Warm-up, lowest rate and total are left as they are in a new ScheduleSpec.
absl::StatusOr<ScheduleSpec> ParseSchedule(const std::string& text);

// The same function as ScheduleFactor, as an expression over `step` (a float scalar: updates applied so far).
Val ScheduleFactor(const ScheduleSpec& schedule, double lr, Val step);

}  // namespace onnxtrain
