#include "optim/plan/step_plan.h"

#include <algorithm>
#include <cmath>

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/input_plan.h"
#include "optim/plan/optimizer_choice.h"
#include "optim/plan/training_data.h"

namespace onnxtrain {
namespace {

// Returns the feed whose tokens are counted; null: none.
const FeedSpec* FindTokens(const BoundData& data) {
  const auto variable = std::ranges::find_if(data.feeds, &FeedSpec::variable);
  if (variable != data.feeds.end()) return &*variable;
  const auto ids = std::ranges::find(data.feeds, data.token_input, &FeedSpec::feed);
  return ids != data.feeds.end() && ids->sample.rank() > 0 ? &*ids : nullptr;
}

absl::Status TooFewTokens(const TrainConfig& config, int64_t accumulation, int64_t longest) {
  return Invalid("`max_tokens_per_batch` ", config.max_tokens_per_batch, ": ",
                 accumulation > 1 ? StrCat("each of ", accumulation, " micro-batches") : std::string("a batch"),
                 " needs at least the ", longest, " tokens of the longest sample, padding included (`max_length` ",
                 "truncates)");
}

}  // namespace

absl::StatusOr<TokenBudget> PlanTokens(const TrainConfig& config, const BoundData& data, BatchPlan* batch) {
  if (config.max_tokens_per_batch == 0) return TokenBudget();
  const FeedSpec* tokens = FindTokens(data);
  if (tokens == nullptr) return Invalid("`max_tokens_per_batch`: the data has no tokens (`text`)");
  const int64_t longest = tokens->sample.shape[0];
  TokenBudget budget{.accumulation = std::max<int64_t>(1, config.gradient_accumulation_steps)};
  budget.tokens = config.max_tokens_per_batch / budget.accumulation;
  budget.max_samples = config.batch_size / budget.accumulation;
  if (budget.tokens < longest) return TooFewTokens(config, budget.accumulation, longest);
  *batch = {budget.Samples(longest), budget.MicroSamples(longest), budget.accumulation};
  return tokens->variable ? budget : TokenBudget();
}

std::string DescribeTokens(const TokenBudget& budget, const std::vector<FeedSpec>& specs) {
  const auto variable = std::ranges::find_if(specs, &FeedSpec::variable);
  const int64_t longest = variable->sample.shape[0], shortest = RoundUpLength(1, longest);
  const auto samples = [&](int64_t length) {
    return StrCat(FormatWithCommas(budget.Samples(length)), " samples of ", length);
  };
  return StrCat("at most ", FormatWithCommas(budget.tokens * budget.accumulation), " tokens: from ", samples(longest),
                " to ", samples(shortest), ", ", budget.accumulation, " micro-batch",
                budget.accumulation > 1 ? "es" : "");
}

absl::StatusOr<BatchPlan> PlanBatch(std::optional<int64_t> global, std::optional<int64_t> micro,
                                    std::optional<int64_t> accumulation, int64_t otherwise) {
  if (micro && accumulation) {
    const int64_t product = *micro * *accumulation;
    if (global && *global != product) {
      return Invalid("`batch_size` ", *global, " is not `micro_batch_size` ", *micro,
                     " × `gradient_accumulation_steps` ", *accumulation, " = ", product);
    }
    return BatchPlan{product, *micro, *accumulation};
  }
  const int64_t batch = global.value_or(otherwise);
  if (accumulation) {
    if (global && batch % *accumulation != 0)
      return Invalid("`gradient_accumulation_steps` ", *accumulation, " does not divide `batch_size` ", batch);
    const int64_t size = std::max<int64_t>(1, batch / *accumulation);
    return BatchPlan{size * *accumulation, size, *accumulation};
  }
  if (!micro) return BatchPlan{batch, batch, 1};
  if (batch % *micro == 0) return BatchPlan{batch, *micro, batch / *micro};
  if (global) return Invalid("`micro_batch_size` ", *micro, " does not divide `batch_size` ", batch);
  return BatchPlan{*micro, *micro, 1};
}

namespace {

// Returns the largest divisor of `batch` that gives at least four micro-batches per stage; 1 if there is none.
int64_t MicrosForStages(int64_t batch, int64_t stages) {
  int64_t micro = std::max<int64_t>(1, batch / (4 * stages));
  while (batch % micro != 0) --micro;
  return micro;
}

}  // namespace

absl::StatusOr<BatchPlan> PlanBatch(const TrainConfig& config, int64_t otherwise) {
  const auto if_set = [](int64_t x) { return x > 0 ? std::optional(x) : std::nullopt; };
  const auto global = if_set(config.batch_size), micro = if_set(config.micro_batch_size);
  const auto accumulation = if_set(config.gradient_accumulation_steps);
  const bool open = config.pipeline > 1 && !micro && !accumulation && config.max_tokens_per_batch == 0;
  if (open) return PlanBatch(global, MicrosForStages(global.value_or(otherwise), config.pipeline), {}, otherwise);
  return PlanBatch(global, micro, accumulation, otherwise);
}

StepPlan PlanSteps(int64_t per_epoch, std::optional<int64_t> epochs, std::optional<int64_t> max_steps) {
  StepPlan plan{.per_epoch = per_epoch};
  plan.max_steps = max_steps.value_or(0);
  if (max_steps && !epochs) epochs = (*max_steps + plan.per_epoch - 1) / plan.per_epoch;
  plan.epochs = epochs.value_or(plan.epochs);
  plan.total = plan.epochs * plan.per_epoch;
  if (max_steps) plan.total = std::min(plan.total, *max_steps);
  return plan;
}

int64_t IntervalSteps(const Interval& interval, int64_t per_epoch) {
  if (interval.unit == Interval::Unit::kSeconds) return 0;
  const double steps =
      interval.unit == Interval::Unit::kEpochs ? interval.value * static_cast<double>(per_epoch) : interval.value;
  return std::max<int64_t>(1, std::llround(steps));
}

int64_t AutoLogSteps(const StepPlan& plan) {
  return std::clamp<int64_t>(std::max(std::min(plan.per_epoch, plan.total) / 20, plan.total / 60), 1, 500);
}

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
