#include "optim/plan/optimizer_choice.h"

#include <algorithm>
#include <array>

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "optim/config/training_settings.h"
#include "optim/step/onnx_functions.h"
#include "optim/step/rules/rule.h"

namespace onnxtrain {
namespace {

double NumberOrRuleDefault(double x) { return x < 0 ? kRuleDefault : x; }

// The default of 1 applies only if no other clipping is configured.
double MaxGradNorm(const TrainConfig& c) {
  if (c.max_grad_norm >= 0) return c.max_grad_norm;
  return c.clip_value > 0 || c.agc > 0 ? 0 : 1;
}

}  // namespace

OptimizerSpec MakeOptimizer(const TrainConfig& c) {
  const bool betas = c.betas.size() == 2;
  return Resolved({.rule = c.optimizer,
                   .momentum = NumberOrRuleDefault(c.momentum),
                   .dampening = c.dampening,
                   .nesterov = c.nesterov,
                   .beta1 = betas ? c.betas[0] : kRuleDefault,
                   .beta2 = betas ? c.betas[1] : kRuleDefault,
                   .eps = NumberOrRuleDefault(c.eps),
                   .weight_decay = c.weight_decay,
                   .no_decay = c.no_decay,
                   .max_grad_norm = MaxGradNorm(c),
                   .clip_value = c.clip_value,
                   .agc = c.agc,
                   .ema_decay = c.ema_decay});
}

namespace {

// Loads the model that a field "onnx:FILE" names.
absl::StatusOr<std::shared_ptr<const OnnxModel>> LoadRuleModel(const std::string& file, const OnnxModel& model,
                                                               const std::optional<TrainingInfo>& info) {
  if (file != kOwnTrainingInfo) return OnnxModel::Load(file);
  if (!info.has_value() || info->rule.empty())
    return Invalid(model.path(), ": ", info.has_value() ? info->problem : "has no training_info");
  return OnnxModel::LoadBytes(std::as_bytes(std::span(info->rule)), StrCat(model.path(), " (training_info)"));
}

bool TakesModelsRule(const TrainConfig& c, const std::optional<TrainingInfo>& info) {
  if (!info.has_value() || info->rule.empty()) return false;
  return std::ranges::none_of(std::array{"optimizer", "momentum", "dampening", "nesterov", "betas", "eps"},
                              [&](const char* field) { return IsSpecified(c, field); });
}

}  // namespace

absl::StatusOr<OptimizerSpec> LoadOptimizer(const TrainConfig& config, const OnnxModel& model,
                                            const std::optional<TrainingInfo>& info) {
  OptimizerSpec spec = MakeOptimizer(config);
  if (TakesModelsRule(config, info)) {
    spec.rule = StrCat("onnx:", kOwnTrainingInfo);
    if (config.max_grad_norm < 0) spec.max_grad_norm = 0;
  }
  if (!NamesOnnxRule(spec.rule)) return spec;
  const std::string file = spec.rule.substr(spec.rule.find(':') + 1);
  if (file.empty()) return Invalid("`optimizer`: expected onnx:FILE");
  auto rule_model = LoadRuleModel(file, model, info);
  if (!rule_model.ok()) return Annotate(rule_model.status(), "`optimizer`: ");
  auto rule = OnnxRule::Make(*std::move(rule_model), spec.rule);
  if (!rule.ok()) return Annotate(rule.status(), "`optimizer`: ");
  spec.onnx_rule = *std::move(rule);
  return spec;
}

absl::StatusOr<ScheduleSpec> MakeSchedule(const TrainConfig& config) {
  auto schedule = ParseSchedule(config.lr_scheduler);
  if (!schedule.ok()) return Annotate(schedule.status(), "`lr_scheduler`: ");
  schedule->warmup = config.warmup;
  schedule->min_lr = config.min_lr;
  return schedule;
}

namespace {

// Describes to users how the model's training_info affects the optimizer.
std::vector<std::string> DescribeTrainingInfo(const TrainConfig& config, const OnnxModel& model,
                                              const std::optional<TrainingInfo>& info, const OptimizerSpec& optimizer) {
  if (const std::string taken = DescribeTrainingSettings(config, model); !taken.empty())
    return {StrCat("the model's training_info: ", taken)};
  if (!info.has_value()) return {};
  if (!info->problem.empty()) return {StrCat("the model's training_info is not taken over: ", info->problem)};
  const bool taken = optimizer.rule == StrCat("onnx:", kOwnTrainingInfo);
  return {StrCat("the model's training_info: ", info->optimizer, taken ? " (`optimizer`)" : " is not taken over")};
}

// Uses the rate of the training_info only together with its rule.
std::vector<std::string> GetRates(const TrainConfig& config, const std::vector<std::string>& rates,
                                  const std::optional<TrainingInfo>& info, const OptimizerSpec& optimizer) {
  const bool own = optimizer.rule == StrCat("onnx:", kOwnTrainingInfo) && !IsSpecified(config, "lr");
  if (!own || !info.has_value() || !info->lr.has_value() || *info->lr <= 0) return rates;
  return {StrCat(*info->lr)};
}

}  // namespace

absl::StatusOr<OptimizerChoice> ChooseOptimizer(const TrainConfig& config, const std::vector<std::string>& rates,
                                                const OnnxModel& model, const PreparedModel& prepared,
                                                const std::vector<std::string>& fresh, int64_t global_batch,
                                                int64_t total_steps) {
  OptimizerChoice choice{.rates = rates};
  ASSIGN_OR_RETURN(const std::optional<TrainingInfo> info, ReadTrainingInfo(model));
  ASSIGN_OR_RETURN(choice.spec, LoadOptimizer(config, model, info));
  ASSIGN_OR_RETURN(choice.schedule, MakeSchedule(config));
  choice.schedule.total_steps = total_steps;
  choice.origin = ClassifyWeightOrigin(CollectWeights(prepared.model, fresh));
  const RateScale scale = ScaleForBatch(config.lr_scale, choice.spec.rule, global_batch, config.lr_scale_base);
  ASSIGN_OR_RETURN(RateChoice chosen, ChooseRates(GetRates(config, rates, info, choice.spec), prepared, choice.origin,
                                                  fresh, choice.spec, scale.factor));
  RETURN_IF_ERROR(DecayByLayer(config, prepared, &chosen));
  choice.spec.lr = chosen.lr;
  choice.spec.lr_factors = std::move(chosen.factors);
  choice.unscaled_lr = chosen.lr / scale.factor;
  choice.rate_text = chosen.why;
  if (scale.factor != 1)
    StrAppend(&choice.rate_text, "; ", FormatNumber(choice.unscaled_lr), " × ", scale.text, " = ",
              FormatNumber(chosen.lr));
  choice.rate_lines = DescribeTrainingInfo(config, model, info, choice.spec);
  choice.rate_lines.insert(choice.rate_lines.end(), chosen.lines.begin(), chosen.lines.end());
  if (choice.schedule.min_lr > choice.spec.lr)
    return Invalid("`min_lr` ", choice.schedule.min_lr, " is above `lr` ", choice.spec.lr);
  return choice;
}

}  // namespace onnxtrain
