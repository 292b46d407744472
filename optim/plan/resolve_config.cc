// Makes the configuration that repeats a run.
#include "backends/registry.h"
#include "frontend/base/status.h"
#include "optim/config/unused_fields.h"
#include "optim/plan/training_run.h"

namespace onnxtrain {
namespace {

void ResetField(const ConfigField& field, TrainConfig* config) {
  static const TrainConfig kDefaults;
  std::visit([&](auto member) { config->*member = kDefaults.*member; }, field.member);
}

}  // namespace

TrainConfig WithDecisions(const TrainingRun& run) {
  TrainConfig c = run.config;
  c.shuffle = run.order.shuffle;
  c.length_grouping = run.order.length_grouping;
  c.metrics = run.session_options.metrics;
  if (run.data.train.text.packed.has_value()) c.packing = *run.data.train.text.packed ? "on" : "off";
  if (run.session_options.import.batch_norm_frozen) c.batch_norm = "frozen";
  if (run.threads > 0) c.threads = run.threads;
  return c;
}

TrainConfig ResolveConfig(const TrainingRun& run) {
  TrainConfig c = WithDecisions(run);
  const OptimizerSpec& optimizer = run.optimizer.spec;
  c.loss = run.data.loss.name;
  if (c.head.empty()) c.logits = run.data.loss.logits;
  const bool in_samples = c.max_tokens_per_batch == 0;
  if (in_samples) c.batch_size = run.batch.global;
  if (in_samples && c.micro_batch_size != TrainConfig::kAuto) {
    c.micro_batch_size = run.batch.micro;
    c.gradient_accumulation_steps = run.batch.accumulation;
  }
  c.lr = ReplaceBaseRate(run.optimizer.rates, run.optimizer.unscaled_lr);
  c.optimizer = optimizer.rule;
  c.mixed_precision = run.precision.name;
  c.max_grad_norm = optimizer.max_grad_norm;
  if (optimizer.in_backward) c.optimizer_in_backward = "yes";
  if (run.session_options.recompute.offload) c.activation_offloading = "yes";
  if (optimizer.weight_dtype == DType::kBFloat16) c.weight_dtype = "bf16";
  c.momentum = optimizer.momentum;
  c.betas = {optimizer.beta1, optimizer.beta2};
  c.eps = optimizer.eps;
  if (run.options.max_workers == 0) c.num_workers = run.options.num_workers;
  if (!IsPluginPath(c.backend)) {
    c.backend = run.backend->name();
    c.device = run.backend->device();
  }
  if (!run.data.train.normalize.empty()) c.normalize = run.data.train.normalize;
  // A default number of epochs stays unset: together with max_steps, it would limit a run that continues this one.
  c.specified.clear();
  const TrainConfig resolved = c;
  for (const ConfigField& field : ConfigFields()) {
    const bool has_effect = ExplainUnused(resolved, field, run.facts).empty();
    if (field.traits.decides || (!has_effect && !IsSpecified(run.config, field.name))) {
      ResetField(field, &c);
    } else if ((field.tasks & kTaskTrain) != 0 && !field.traits.transient && !FieldTexts(c, field).empty()) {
      c.specified.emplace(field.name);
    }
  }
  return c;
}

}  // namespace onnxtrain
