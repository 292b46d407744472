// The arithmetic of a run: batches, updates, intervals, optimizer. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "optim/loss.h"
#include "optim/optimizer.h"
#include "tools/onnxtrain/pretrained.h"
#include "tools/onnxtrain/units.h"

namespace onnxtrain::cli {

struct BatchPlan {
  int64_t global = 32, micro = 32, accumulation = 1;  // global = micro × accumulation
};
// Any two determine the third; one alone keeps the default global batch where that divides. Contradictions are errors.
absl::StatusOr<BatchPlan> PlanBatch(std::optional<int64_t> global, std::optional<int64_t> micro,
                                    std::optional<int64_t> accumulation, int64_t otherwise = BatchPlan().global);

struct StepPlan {
  int64_t per_epoch = 1;  // updates
  int64_t epochs = 3;
  int64_t max_steps = 0;  // 0: no limit but the epochs
  int64_t total = 0;      // updates of the whole run, unless time ends it
};
// `epochs` not given and `max_steps` given: as many epochs as that takes. `samples` and `batch` above 0.
StepPlan PlanSteps(int64_t samples, int64_t batch, bool drop_last, std::optional<int64_t> epochs,
                   std::optional<int64_t> max_steps);

// An interval of updates or epochs as updates, at least 1; 0 for one of time.
int64_t IntervalSteps(const Interval& interval, int64_t per_epoch);

// Updates between progress lines: about 20 lines an epoch, at most about 60 in all, at least one every 500 updates.
int64_t AutoLogSteps(const StepPlan& plan);

// The contract's default learning rate.
double DefaultRate(bool pretrained, bool transformer);
bool IsTransformer(const Graph& graph);

// "0.9,0.999"
absl::StatusOr<std::pair<double, double>> ParseBetas(const std::string& text);

// What decides whether a flag means anything in this run.
struct RunFacts {
  bool has_data = true;  // else synthetic
  bool has_eval = true;
  std::string optimizer = "adamw";  // a rule that exists
  double momentum = 0;
  std::string scheduler;
  double weight_decay = 0;
  bool scales_lr = true;
  std::string loss_takes = "label_smoothing ignore_index";  // what the losses read: see LossTakes
  bool has_images = true, is_table = true, has_batch_norm = true, has_dropout = true;
  bool eval_data_given = false;
  bool fp16 = false;
};
// Why a flag of `train` has no effect in such a run; "" where it has one.
std::string WhyNoEffect(const std::string& flag, const RunFacts& facts);

}  // namespace onnxtrain::cli
