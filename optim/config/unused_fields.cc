#include "optim/config/unused_fields.h"

#include "frontend/base/status.h"
#include "optim/step/rules/rule.h"

namespace onnxtrain {
namespace {

struct EffectRow {
  const char* field;
  bool (*without)(const RunFacts& f);  // true: no effect
  const char* why;
};

bool NoData(const RunFacts& f) { return !f.has_data; }
bool NoEval(const RunFacts& f) { return !f.has_eval; }
bool NoPictures(const RunFacts& f) { return !f.has_pictures; }
bool NoBatchNorm(const RunFacts& f) { return !f.has_batch_norm; }
constexpr const char* kNoBatchNorm = "the model has no BatchNormalization nodes";
constexpr const char* kNoPictures = "the data feeds no files of pictures";
bool NoSounds(const RunFacts& f) { return !f.has_sounds; }
constexpr const char* kNoSounds = "the data feeds no files of sound";
constexpr const char* kNoEval = "there is no evaluation data (`eval_data`, `eval_split`)";
// Does the update rule read that number?
bool Takes(const RunFacts& f, std::string_view number) {
  const OptimizerRule* rule = FindRule({.rule = f.optimizer});
  return rule != nullptr && rule->takes.find(number) != std::string_view::npos;
}
bool NoMomentum(const RunFacts& f) { return f.optimizer != "sgd" || f.momentum == 0; }
bool IsConstant(const RunFacts& f) { return f.scheduler == "constant"; }
bool IsOneCycle(const RunFacts& f) { return f.scheduler == "one_cycle"; }

constexpr EffectRow kEffects[] = {
    {"eval_data", NoData, "there is no `data`"},
    {"eval_split", NoData, "there is no `data`"},
    {"eval_split", [](const RunFacts& f) { return f.eval_data_given; }, "`eval_data` is given"},
    {"label", NoData, "there is no `data`"},
    {"text", NoData, "there is no `data`"},
    {"tokenizer", NoData, "there is no `data`"},
    {"max_length", NoData, "there is no `data`"},
    {"length_grouping", NoData, "there is no `data`"},
    {"max_tokens_per_batch", NoData, "there is no `data`"},
    {"class_map", NoData, "there is no `data`"},
    {"header", NoData, "there is no `data`"},
    {"encoding", NoData, "there is no `data`"},
    {"encode", NoData, "there is no `data`"},
    {"fill", NoData, "there is no `data`"},
    {"standardize", NoData, "there is no `data`"},
    {"scale_targets", NoData, "there is no `data`"},
    {"on_bad_sample", NoData, "there is no `data`"},
    {"normalize", NoData, "there is no `data`"},
    {"epochs", NoData, "there is no `data` (say `max_steps`)"},
    {"shuffle", NoData, "there is no `data`"},
    {"cache", NoData, "there is no `data`"},
    {"image_size", NoData, "there is no `data`"},
    {"resize", NoData, "there is no `data`"},
    {"channel_order", NoData, "there is no `data`"},
    {"augment", NoData, "there is no `data`"},
    {"sample_rate", NoData, "there is no `data`"},
    {"audio_length", NoData, "there is no `data`"},
    {"normalize", [](const RunFacts& f) { return !f.has_images; }, "the data feeds no 8-bit images"},
    {"image_size", NoPictures, kNoPictures},
    {"resize", NoPictures, kNoPictures},
    {"channel_order", NoPictures, kNoPictures},
    {"decode_scaling", NoPictures, kNoPictures},
    {"augment", [](const RunFacts& f) { return !f.augments; }, "the data feeds no pictures"},
    {"sample_rate", NoSounds, kNoSounds},
    {"audio_length", NoSounds, kNoSounds},
    {"metrics", NoEval, kNoEval},
    {"eval_every", NoEval, kNoEval},
    {"momentum", [](const RunFacts& f) { return !Takes(f, "momentum"); },
     "only `optimizer` sgd, rmsprop and lars have momentum"},
    {"dampening", NoMomentum, "only `optimizer` sgd with `momentum` has it"},
    {"nesterov", NoMomentum, "only `optimizer` sgd with `momentum` has it"},
    {"betas", [](const RunFacts& f) { return !Takes(f, "betas"); }, "the `optimizer` has none"},
    {"eps", [](const RunFacts& f) { return !Takes(f, "eps"); }, "the `optimizer` has none"},
    {"no_decay", [](const RunFacts& f) { return f.weight_decay == 0; }, "there is no `weight_decay`"},
    {"lr_scale_base", [](const RunFacts& f) { return !f.scales_lr; }, "there is no `lr_scale`"},
    {"monitor", [](const RunFacts& f) { return !f.compares_evals; },
     "nothing compares evaluations (`lr_scheduler` plateau, `keep_best`, `early_stopping_patience`, `export_weights` "
     "best)"},
    {"save_every", NoData, "there is no `data`"},
    {"keep_last", NoData, "there is no `data`"},
    {"keep_best", NoEval, kNoEval},
    {"early_stopping_patience", NoEval, kNoEval},
    {"min_lr", IsConstant, "`lr_scheduler` constant never falls"},
    {"min_lr", IsOneCycle, "`lr_scheduler` one_cycle has an end of its own (final_div)"},
    {"warmup", IsOneCycle, "`lr_scheduler` one_cycle rises by itself (pct)"},
    {"loss_scale", [](const RunFacts& f) { return !f.fp16; }, "only `mixed_precision` fp16 scales the loss"},
    {"label_smoothing", [](const RunFacts& f) { return f.loss_takes.find("label_smoothing") == std::string::npos; },
     "the loss is not cross_entropy"},
    {"ignore_index", [](const RunFacts& f) { return f.loss_takes.find("ignore_index") == std::string::npos; },
     "the loss has no class labels"},
    {"class_weights", [](const RunFacts& f) { return f.loss_takes.find("class_weights") == std::string::npos; },
     "the loss has no class labels"},
    {"batch_norm", NoBatchNorm, kNoBatchNorm},
    {"sync_batch_norm", NoBatchNorm, kNoBatchNorm},
    {"dropout", [](const RunFacts& f) { return !f.has_dropout; }, "the model has no Dropout nodes"},
};

}  // namespace

std::string WhyNoEffect(std::string_view field, const RunFacts& facts) {
  for (const EffectRow& row : kEffects) {
    if (field == row.field && row.without(facts)) return row.why;
  }
  return "";
}

absl::Status CheckEffects(const TrainConfig& config, const RunFacts& facts) {
  for (const EffectRow& row : kEffects) {
    if (IsSpecified(config, row.field) && row.without(facts))
      return Invalid("`", row.field, "`: has no effect: ", row.why);
  }
  return absl::OkStatus();
}

absl::Status CheckEffectsWithoutData(const TrainConfig& config) {
  for (const EffectRow& row : kEffects) {
    if (row.without == NoData && IsSpecified(config, row.field))
      return Invalid("`", row.field, "`: has no effect: ", row.why);
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
