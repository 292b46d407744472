#include "tools/onnxtrain/train_plan.h"

#include <algorithm>
#include <cmath>

#include "frontend/base/status.h"
#include "optim/rules/rule.h"

namespace onnxtrain::cli {

absl::StatusOr<BatchPlan> PlanBatch(std::optional<int64_t> global, std::optional<int64_t> micro,
                                    std::optional<int64_t> accumulation, int64_t otherwise) {
  if (micro && accumulation) {
    const int64_t product = *micro * *accumulation;
    if (global && *global != product) {
      return Invalid("--batch-size ", *global, " is not --micro-batch-size ", *micro,
                     " × --gradient-accumulation-steps ", *accumulation, " = ", product);
    }
    return BatchPlan{product, *micro, *accumulation};
  }
  const int64_t batch = global.value_or(otherwise);
  if (accumulation) {
    if (batch % *accumulation != 0) {
      return Invalid("--gradient-accumulation-steps ", *accumulation, " does not divide --batch-size ", batch);
    }
    return BatchPlan{batch, batch / *accumulation, *accumulation};
  }
  if (!micro) return BatchPlan{batch, batch, 1};
  if (batch % *micro == 0) return BatchPlan{batch, *micro, batch / *micro};
  if (global) return Invalid("--micro-batch-size ", *micro, " does not divide --batch-size ", batch);
  return BatchPlan{*micro, *micro, 1};
}

StepPlan PlanSteps(int64_t samples, int64_t batch, bool drop_last, std::optional<int64_t> epochs,
                   std::optional<int64_t> max_steps) {
  StepPlan plan;
  plan.per_epoch = std::max<int64_t>(1, drop_last ? samples / batch : (samples + batch - 1) / batch);
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

double DefaultRate(bool pretrained, bool transformer) { return !pretrained ? 1e-3 : transformer ? 2e-5 : 1e-4; }

bool IsTransformer(const Graph& graph) {
  const auto count = [&](std::string_view op) {
    return std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& n) { return n.op == op; });
  };
  return count("Attention") > 0 || (count("LayerNorm") + count("RmsNorm") > 1 && count("Softmax") > 0);
}

absl::StatusOr<std::pair<double, double>> ParseBetas(const std::string& text) {
  const auto parts = ParseList(text);
  std::pair<double, double> betas;
  double* const into[] = {&betas.first, &betas.second};
  bool good = parts.ok() && parts->size() == 2;
  for (size_t i = 0; good && i < 2; ++i) {
    const auto value = ParseNumber((*parts)[i]);
    good = value.ok() && *value >= 0 && *value < 1;
    if (good) *into[i] = *value;
  }
  if (!good) return Invalid("expected two numbers from 0 to below 1, like 0.9,0.999, got '", text, "'");
  return betas;
}

namespace {

struct EffectRow {
  const char* flag;
  bool (*without)(const RunFacts& f);  // true: no effect
  const char* why;
};

bool NoData(const RunFacts& f) { return !f.has_data; }
// Does the rule read that number?
bool Takes(const RunFacts& f, std::string_view number) { return FindRule({.rule = f.optimizer})->takes.find(number) != std::string_view::npos; }
bool NoMomentum(const RunFacts& f) { return f.optimizer != "sgd" || f.momentum == 0; }
bool IsConstant(const RunFacts& f) { return f.scheduler == "constant"; }
bool IsOneCycle(const RunFacts& f) { return f.scheduler == "one_cycle"; }

constexpr EffectRow kEffects[] = {
    {"eval_data", NoData, "there is no --data"},
    {"eval_split", NoData, "there is no --data"},
    {"eval_split", [](const RunFacts& f) { return f.eval_data_given; }, "--eval-data is given"},
    {"input", NoData, "there is no --data"},
    {"label", NoData, "there is no --data"},
    {"header", NoData, "there is no --data"},
    {"normalize", NoData, "there is no --data"},
    {"epochs", NoData, "there is no --data (say --max-steps)"},
    {"shuffle", NoData, "there is no --data"},
    {"header", [](const RunFacts& f) { return !f.is_table; }, "the data is no table of text"},
    {"normalize", [](const RunFacts& f) { return !f.has_images; }, "the data feeds no 8-bit images"},
    {"metrics", [](const RunFacts& f) { return !f.has_eval; }, "there is no evaluation data (--eval-data, --eval-split)"},
    {"eval_every", [](const RunFacts& f) { return !f.has_eval; },
     "there is no evaluation data (--eval-data, --eval-split)"},
    {"momentum", [](const RunFacts& f) { return !Takes(f, "momentum"); }, "only --optimizer sgd, rmsprop and lars have momentum"},
    {"dampening", NoMomentum, "only --optimizer sgd with --momentum has it"},
    {"nesterov", NoMomentum, "only --optimizer sgd with --momentum has it"},
    {"betas", [](const RunFacts& f) { return !Takes(f, "betas"); }, "the --optimizer has none"},
    {"eps", [](const RunFacts& f) { return !Takes(f, "eps"); }, "the --optimizer has none"},
    {"no_decay", [](const RunFacts& f) { return f.weight_decay == 0; }, "there is no --weight-decay"},
    {"lr_scale_base", [](const RunFacts& f) { return !f.scales_lr; }, "there is no --lr-scale"},
    {"monitor", [](const RunFacts& f) { return f.scheduler != "plateau"; }, "--lr-scheduler is not plateau"},
    {"min_lr", IsConstant, "--lr-scheduler constant never falls"},
    {"min_lr", IsOneCycle, "--lr-scheduler one_cycle has an end of its own (final_div)"},
    {"warmup", IsOneCycle, "--lr-scheduler one_cycle rises by itself (pct)"},
    {"loss_scale", [](const RunFacts& f) { return !f.fp16; }, "only --mixed-precision fp16 scales the loss"},
    {"label_smoothing", [](const RunFacts& f) { return f.loss_takes.find("label_smoothing") == std::string::npos; },
     "the loss is not cross_entropy"},
    {"ignore_index", [](const RunFacts& f) { return f.loss_takes.find("ignore_index") == std::string::npos; },
     "the loss has no class labels"},
    {"class_weights", [](const RunFacts& f) { return f.loss_takes.find("class_weights") == std::string::npos; },
     "the loss has no class labels"},
    {"batch_norm", [](const RunFacts& f) { return !f.has_batch_norm; }, "the model has no BatchNormalization nodes"},
    {"dropout", [](const RunFacts& f) { return !f.has_dropout; }, "the model has no Dropout nodes"},
};

}  // namespace

std::string WhyNoEffect(const std::string& flag, const RunFacts& facts) {
  for (const EffectRow& row : kEffects) {
    if (row.flag == flag && row.without(facts)) return row.why;
  }
  return "";
}

}  // namespace onnxtrain::cli
