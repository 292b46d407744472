#include "optim/plan/loop_plan.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/free_dims.h"

namespace onnxtrain {
namespace {

std::optional<int64_t> IfSet(int64_t x) { return x > 0 ? std::optional(x) : std::nullopt; }

void SetInterval(const Interval& interval, int64_t per_epoch, int64_t* steps, double* seconds) {
  *steps = IntervalSteps(interval, per_epoch);
  if (interval.unit == Interval::Unit::kSeconds) *seconds = interval.value;
}

}  // namespace

OrderChoice ChooseOrder(const TrainConfig& config, const BoundData& data) {
  // The calling program decides the order of its samples.
  if (data.dataset == nullptr) return {.shuffle = config.shuffle, .length_grouping = config.length_grouping};
  if (!data.sample_index_input.empty()) return {.shuffle = false, .length_grouping = config.length_grouping};
  const bool open = !IsSpecified(config, "length_grouping") && config.shuffle && SizeMultiple(data) > 0;
  return {.shuffle = config.shuffle, .length_grouping = open ? LengthsDiffer(*data.dataset) : config.length_grouping};
}

StepPlan PlanSteps(const TrainConfig& config, const TrainingData& data, int64_t global_batch,
                   const TokenBudget& tokens) {
  if (data.one_batch) return PlanSteps(1, 1, std::nullopt);
  const BoundData& bound = data.train.bound;
  const LoaderOptions load{.batch_size = global_batch, .drop_last = config.drop_last, .tokens = tokens};
  return PlanSteps(CountBatches(*bound.dataset, bound.feeds, load), IfSet(config.epochs),
                   IfSet(data.synthetic ? SyntheticSteps(config) : config.max_steps));
}

TrainOptions PlanLoop(const TrainConfig& config, const StepPlan& steps, const OrderChoice& order,
                      const TokenBudget& tokens, int64_t global_batch) {
  TrainOptions options{.batch_size = global_batch,
                       .epochs = steps.epochs,
                       .max_steps = steps.max_steps,
                       .max_seconds = config.max_time,
                       .shuffle = order.shuffle,
                       .length_grouping = order.length_grouping,
                       .drop_last = config.drop_last,
                       .tokens = tokens,
                       .num_workers = NumWorkers(config),
                       .max_workers = MaxWorkers(config),
                       .prefetch_factor = static_cast<int>(config.prefetch_factor),
                       .seed = static_cast<uint64_t>(config.seed),
                       .saves_state = !config.data.empty(),
                       .compare_weights_every = config.compare_weights_every};
  if (config.log_every.value > 0) {
    SetInterval(config.log_every, steps.per_epoch, &options.log_every, &options.log_seconds);
  } else {
    options.log_every = AutoLogSteps(steps);
  }
  SetInterval(config.eval_every, steps.per_epoch, &options.eval_every, &options.eval_seconds);
  if (config.save_every.value > 0)
    SetInterval(config.save_every, steps.per_epoch, &options.save_every, &options.save_seconds);
  if (config.on_nonfinite == "abort") options.max_consecutive_skips = 1;
  return options;
}

absl::Status SetMonitor(const TrainConfig& config, const LossChoice& loss, const std::vector<std::string>& metrics,
                        bool has_eval, TrainOptions* options) {
  if (!ComparesEvaluations(config)) return absl::OkStatus();
  if (!has_eval)
    return Invalid(config.lr_scheduler.starts_with("plateau") ? "`lr_scheduler` plateau" : "`export_weights` best",
                   ": there is no evaluation data (`eval_data`, `eval_split`)");
  const std::vector<std::string> names = EvalNames(loss, metrics);
  const size_t colon = config.monitor.rfind(':');
  const std::string name = config.monitor.substr(0, colon),
                    to = colon == std::string::npos ? "" : config.monitor.substr(colon + 1);
  const bool known = name == "loss" || (name == "accuracy" && loss.classes) || std::ranges::count(names, name) > 0;
  if (!known || (to != "min" && to != "max" && !to.empty())) {
    return Invalid("`monitor` ", config.monitor, ": expected loss, ", loss.classes ? "accuracy, " : "",
                   "or one of `metrics`, with :min or :max behind it");
  }
  const auto is = [&](const char* metric) { return name.starts_with(metric); };
  const bool falls = name == "loss" || is("mae") || is("rmse") || is("perplexity") || is("bits_per");
  options->monitor = name;
  options->monitor_max = to.empty() ? !falls : to == "max";
  options->patience = config.early_stopping_patience;
  options->save_best = config.keep_best > 0 || config.export_weights == "best";
  return absl::OkStatus();
}

std::unique_ptr<Plateau> MakePlateau(const OptimizerChoice& optimizer, TrainOptions* options) {
  if (optimizer.schedule.name != "plateau") return nullptr;
  auto plateau = std::make_unique<Plateau>(optimizer.schedule, optimizer.spec.lr, options->monitor_max);
  options->plateau = plateau.get();
  return plateau;
}

}  // namespace onnxtrain
