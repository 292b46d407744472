// Checks which configurations are invalid for any model and data.
#include <algorithm>

#include "absl/strings/str_replace.h"
#include "backends/registry.h"
#include "frontend/base/status.h"
#include "frontend/data/bind/preprocess.h"
#include "optim/config/config.h"
#include "optim/config/loss_text.h"
#include "optim/config/unused_fields.h"
#include "optim/loop/lr_schedule.h"
#include "optim/plan/optimizer_choice.h"
#include "optim/record/telemetry/trace.h"
#include "optim/step/rules/rule.h"

namespace onnxtrain {
namespace {

using C = TrainConfig;

struct Rule {
  bool (*broken)(const C& c);
  const char* message;
};

bool IsCuda(const std::string& device) {
  return device == "cuda" || (device.starts_with("cuda:") && ParseInt(device.substr(5)).ok());
}

bool AsksToRecompute(const C& c) { return c.gradient_checkpointing != "auto" && c.gradient_checkpointing != "none"; }

bool IsAdapterForm(const std::string& form) { return form == "merged" || form == "peft" || form == "onnx"; }

constexpr Rule kRules[] = {
    {[](const C& c) { return !c.head.empty() && c.num_classes == 0; },
     "`head`: how many classes? (`num_classes` N or auto)"},
    {[](const C& c) { return c.export_weights == "best" && c.data.empty(); },
     "`export_weights` best: there is no `data` to evaluate on"},
    {[](const C& c) { return !c.checkpoint.empty() && !c.weights.empty(); },
     "`checkpoint`: holds weights, and `weights` is given too"},
    {[](const C& c) { return c.resume == "auto" && c.out.empty(); }, "`resume` auto: in which folder? (`out`)"},
    {[](const C& c) { return !c.resume.empty() && c.overwrite; }, "`resume`: continues what `overwrite` would remove"},
    {[](const C& c) { return c.ema_decay > 0 && KeepsAverage(OptimizerSpec{.rule = c.optimizer}); },
     "`ema_decay`: the `optimizer` keeps an average of the weights already"},
    {[](const C& c) { return c.weight_dtype == "bf16" && KeepsAverage(c); },
     "`weight_dtype` bf16: the run keeps an average of the weights, which needs float32 (`ema_decay`, `optimizer`)"},
    {[](const C& c) { return c.weight_dtype == "bf16" && (c.pipeline > 1 || c.tensor > 1); },
     "`weight_dtype` bf16: needs the whole model on each rank, of which `pipeline` and `tensor` divide it"},
    {[](const C& c) { return c.export_weights == "ema" && !KeepsAverage(c); },
     "`export_weights` ema: no average is kept; say `ema_decay`"},
    {[](const C& c) { return c.cache != "none" && c.decode_scaling && !c.augment.empty(); },
     "`cache`: keeps whole pictures for `augment`, of which `decode_scaling` decodes another copy every time"},
    {[](const C& c) { return c.micro_batch_size == C::kAuto && c.gradient_accumulation_steps != 0; },
     "`micro_batch_size` auto: chooses `gradient_accumulation_steps`, which is specified too"},
    {[](const C& c) { return c.max_tokens_per_batch > 0 && c.micro_batch_size != 0; },
     "`micro_batch_size`: counts samples, but `max_tokens_per_batch` counts tokens (say "
     "`gradient_accumulation_steps`)"},
    {[](const C& c) { return c.max_tokens_per_batch > 0 && c.lr_scale != "none"; },
     "`lr_scale`: follows the samples of a batch, which `max_tokens_per_batch` leaves open"},
    {[](const C& c) { return c.ladder && (c.pipeline > 1 || c.tensor > 1 || c.world > 1); },
     "`ladder`: is that of a whole model on one rank (no `pipeline`, `tensor`, `world`)"},
    {[](const C& c) { return c.ladder && (c.memory_budget > 0 || !c.plot.empty()); },
     "`ladder`: has a plan for each rung (no `memory_budget`, `plot`)"},
    {[](const C& c) { return c.gradient_checkpointing == "budget" && c.memory_budget == 0; },
     "`gradient_checkpointing` budget: needs a `memory_budget`"},
    {[](const C& c) { return !std::ranges::all_of(c.adapter_out, IsAdapterForm); },
     "`adapter_out`: expected a list of merged, peft and onnx"},
    {[](const C& c) { return c.nesterov && c.dampening != 0; }, "`nesterov`: needs a `dampening` of 0"},
    {[](const C& c) { return c.lr_find && SpecifiesBaseRate(c.lr); },
     "`lr_find`: finds the learning rate, which `lr` specifies too"},
    {[](const C& c) { return c.deterministic && c.comm_dtype != "f32"; },
     "`deterministic`: how gradients are rounded would depend on the number of ranks (`comm_dtype` f32)"},
    {[](const C& c) { return c.sync_batch_norm && c.deterministic; },
     "`sync_batch_norm`: its statistics depend on the number of ranks, which `deterministic` rules out"},
    {[](const C& c) { return (c.shard == "gradients" || c.shard == "full") && c.histogram_every.value > 0; },
     "`histogram_every`: needs whole gradients, of which `shard` gradients and full leave each rank a share"},
    {[](const C& c) { return c.deterministic && c.threads == 0; },
     "`deterministic`: sums depend on the number of threads: how many has each rank? (`threads` N)"},
    {[](const C& c) { return c.deterministic && c.micro_batch_size == 0 && c.gradient_accumulation_steps == 0; },
     "`deterministic`: sums depend on the micro-batches: how large are they? (`micro_batch_size` N)"},
    {[](const C& c) { return c.deterministic && (c.micro_batch_size == C::kAuto || c.automatic); },
     "`deterministic`: measurements would decide (no `auto`, and a number for `micro_batch_size`)"},
    {[](const C& c) { return c.deterministic && c.mixed_precision == "auto"; },
     "`deterministic`: measurements would decide `mixed_precision`: say no, bf16 or fp16"},
    {[](const C& c) { return !c.betas.empty() && c.betas.size() != 2; },
     "`betas`: expected two numbers, like 0.9,0.999"},
};

// Returns the flag that divides the model among ranks, or null.
const char* FindDivision(const C& c) { return c.pipeline > 1 ? "pipeline" : c.tensor > 1 ? "tensor" : nullptr; }

// Rules for models divided among ranks. "$" stands for the flag.
constexpr Rule kDividedRules[] = {
    {[](const C& c) { return c.pipeline > 1 && c.tensor > 1; },
     "`tensor`: the stages of a `pipeline` cannot be divided further"},
    {[](const C& c) { return c.shard != "none" && c.shard != "auto"; },
     "`shard`: the ranks of `$` hold parts of the state already"},
    {[](const C& c) { return c.comm_dtype != "f32"; },
     "`comm_dtype`: rounds gradients that ranks sum, those of `$` have none"},
    {[](const C& c) { return c.compare_weights_every > 0; },
     "`compare_weights_every`: the ranks of `$` have different weights"},
    {[](const C& c) { return c.automatic || c.lr_find; },
     "`$`: trials need the whole model on one rank (no `auto`, no `lr_find`)"},
    {[](const C& c) { return c.micro_batch_size == C::kAuto || c.mixed_precision == "auto"; },
     "`$`: measurements need the whole model on one rank (a number for `micro_batch_size`, no, bf16 or fp16 for "
     "`mixed_precision`)"},
    {[](const C& c) { return c.scale_targets; },
     "`scale_targets`: changes the last weights of the whole model, of which a rank of `$` has a part"},
    {[](const C& c) { return c.pipeline > 1 && (c.memory_budget > 0 || AsksToRecompute(c)); },
     "`$`: nothing is recomputed (no `gradient_checkpointing`, no `memory_budget`)"},
    {[](const C& c) { return c.pipeline > 1 && c.activation_offloading == "yes"; },
     "`$`: activations stay in memory (no `activation_offloading`)"},
    {[](const C& c) { return c.histogram_every.value > 0; },
     "`histogram_every`: needs the gradients of the whole model, of which a rank of `$` has a part"},
    {[](const C& c) { return c.world > 1; },
     "`world`: the ranks of `$` have one part each; groups of them are not supported"},
};

absl::Status CheckDivision(const C& c) {
  const char* flag = FindDivision(c);
  for (const Rule& rule : kDividedRules) {
    if (flag != nullptr && rule.broken(c)) return Invalid(absl::StrReplaceAll(rule.message, {{"$", flag}}));
  }
  return absl::OkStatus();
}

absl::Status CheckDevice(const C& c) {
  if (IsPluginPath(c.backend)) return absl::OkStatus();  // the plugin validates its devices
  const bool cuda = IsCuda(c.device);
  if (c.device != "auto" && c.device != "cpu" && !cuda)
    return Invalid("`device`: expected auto, cpu or cuda:N, got '", c.device, "'");
  if (cuda && c.backend == "cpu") return Invalid("`device` ", c.device, ": `backend` cpu runs on the CPU only");
  return absl::OkStatus();
}

absl::Status CheckPairs(const char* field, const std::vector<std::string>& texts, const char* shape) {
  for (const std::string& text : texts)
    RETURN_IF_ERROR(Annotate(ParsePair(text, shape).status(), StrCat("`", field, "`: ")));
  return absl::OkStatus();
}

}  // namespace

bool KeepsAverage(const TrainConfig& config) {
  return KeepsAverage(OptimizerSpec{.rule = config.optimizer, .ema_decay = config.ema_decay});
}

absl::Status Validate(const TrainConfig& c) {
  RETURN_IF_ERROR(CheckFields(c));
  for (const Rule& rule : kRules) {
    if (rule.broken(c)) return Invalid(rule.message);
  }
  RETURN_IF_ERROR(CheckDivision(c));
  RETURN_IF_ERROR(RefuseUnused(c, {.config = ConfigState::kParsed}));
  RETURN_IF_ERROR(CheckDevice(c));
  RETURN_IF_ERROR(CheckPairs("input", c.input, "MODEL_INPUT=COLUMN[,…]"));
  if (!c.normalize.empty()) RETURN_IF_ERROR(Annotate(ParseNormalize(c.normalize).status(), "`normalize`: "));
  if (!c.profile_steps.empty())
    RETURN_IF_ERROR(Annotate(ParseStepRange(c.profile_steps).status(), "`profile_steps`: "));
  RETURN_IF_ERROR(CheckRates(c.lr));
  if (!c.loss.empty()) RETURN_IF_ERROR(ParseLoss(c.loss).status());
  return Annotate(ParseSchedule(c.lr_scheduler).status(), "`lr_scheduler`: ");
}

}  // namespace onnxtrain
