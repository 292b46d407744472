#include "optim/auto/session_setup.h"

#include <filesystem>
#include <map>

#include "backends/registry.h"
#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "optim/auto/model_setup.h"
#include "optim/lr_schedule.h"
#include "optim/rules/rule.h"

namespace onnxtrain {
namespace {

double NumberOrRuleDefault(double x) { return x < 0 ? kRuleDefault : x; }

// The default of 1 applies where no other clipping is configured.
double MaxGradNorm(const TrainConfig& c) {
  if (c.max_grad_norm >= 0) return c.max_grad_norm;
  return c.clip_value > 0 || c.agc > 0 ? 0 : 1;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeTorch(const std::string& device, BackendOptions options) {
  if (device == "auto" && std::filesystem::exists("/dev/nvidia0")) {
    options.device = "cuda:0";
    auto backend = CreateBackend("torch", options);
    if (backend.ok()) return backend;
  }
  options.device = device == "auto" ? "cpu" : device == "cuda" ? "cuda:0" : device;
  return CreateBackend("torch", options);
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

absl::StatusOr<ScheduleSpec> MakeSchedule(const TrainConfig& config) {
  auto schedule = ParseSchedule(config.lr_scheduler);
  if (!schedule.ok()) return Annotate(schedule.status(), "`lr_scheduler`: ");
  schedule->warmup = config.warmup;
  schedule->min_lr = config.min_lr;
  return schedule;
}

RecomputeSpec MakeRecomputeSpec(const TrainConfig& config) {
  static const std::map<std::string, RecomputeMode> kModes = {{"none", RecomputeMode::kNone},
                                                              {"auto", RecomputeMode::kAuto},
                                                              {"sqrt", RecomputeMode::kSqrt},
                                                              {"all", RecomputeMode::kAll},
                                                              {"budget", RecomputeMode::kBudget}};
  return {.mode = kModes.at(config.gradient_checkpointing), .memory_budget = config.memory_budget};
}

absl::StatusOr<SessionOptions> MakeSessionOptions(const TrainConfig& config, const OnnxModel& model,
                                                  const BoundData& data, const LossSpec& loss, int64_t micro_batch) {
  SessionOptions options{.loss = loss,
                         .labels = data.label.info,
                         .metrics = config.metrics,
                         .trainable = MakeTrainableSpec(config),
                         .micro_batch = micro_batch,
                         .seed = static_cast<uint64_t>(config.seed)};
  for (const auto& [key, label] : data.own_labels) options.loss.own_labels[key] = label.info;
  ASSIGN_OR_RETURN(options.import, MakeImportOptions(config, model));
  options.import.input_shapes = data.input_shapes;
  options.import.fixed_inputs = data.fixed_inputs;
  return options;
}

absl::StatusOr<PreparedModel> PrepareFor(PreparedModels& models, const BoundData& data, const SessionOptions& options,
                                         bool training) {
  ASSIGN_OR_RETURN(PreparedModel prepared,
                   models.PrepareWeights(MakePrepareOptions(options), options.micro_batch, training, true));
  auto loss = ChooseLoss(prepared.model, options.loss, options.labels);
  if (!loss.ok() && !data.label.text.empty())
    return Invalid(ToStd(loss.status().message()), " (", data.label.text, ")");
  ASSIGN_OR_RETURN(prepared.loss, std::move(loss));
  RETURN_IF_ERROR(CheckLossBatch(prepared.model.graph, prepared.loss, options.micro_batch));
  return prepared;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const TrainConfig& config) {
  const BackendOptions options{.device = "cpu",
                               .threads = config.threads > 0 ? static_cast<int>(config.threads) : CpuCount()};
  if (config.backend == "cpu" || (config.backend == "auto" && config.device == "cpu"))
    return CreateBackend("cpu", options);
  if (config.backend == "torch" || config.device != "auto") return MakeTorch(config.device, options);
  return CreateBackend("auto", options);
}

}  // namespace onnxtrain
