#include "optim/config/training_settings.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

constexpr const char* kLoss[] = {"loss", "logits", "label_smoothing", "class_weights", "ignore_index"};
constexpr const char* kRule[] = {"optimizer",   "momentum", "dampening",   "nesterov",
                                 "betas",       "eps",      "galore_rank", "galore_update_proj_gap",
                                 "galore_scale"};
// These fields have a meaning only together with their rule.
constexpr const char* kNumbers[] = {"lr", "weight_decay", "no_decay", "layer_lr_decay", "ema_decay"};
constexpr const char* kClip[] = {"max_grad_norm", "clip_value", "agc"};
constexpr const char* kWeights[] = {"train", "freeze"};
constexpr std::span<const char* const> kParts[] = {kLoss, kRule, kNumbers, kClip, kWeights};

bool IsAnySpecified(const TrainConfig& config, std::span<const char* const> names) {
  return std::ranges::any_of(names, [&](const char* name) { return IsSpecified(config, name); });
}

void CopyField(const TrainConfig& from, const char* name, TrainConfig* to) {
  const ConfigField& field = *FindField(name);
  std::visit([&](auto member) { to->*member = from.*member; }, field.member);
  to->specified.emplace(field.name);
}

void CopySpecified(const TrainConfig& from, std::span<const char* const> names, TrainConfig* to) {
  for (const char* name : names) {
    if (IsSpecified(from, name)) CopyField(from, name, to);
  }
}

absl::StatusOr<TrainConfig> ReadSettings(const OnnxModel& model) {
  const std::string& text = FindModelMetadata(model, kTrainingSettings);
  if (text.empty()) return TrainConfig();
  ASSIGN_OR_RETURN(TrainConfig settings, FromJson(text));
  RETURN_IF_ERROR(Validate(settings));
  return settings;
}

}  // namespace

std::string ToTrainingSettings(const TrainConfig& config, const std::vector<std::string>& trained) {
  if (config.loss.starts_with("onnx:") || config.optimizer.starts_with("onnx:")) return "";
  TrainConfig settings;
  for (const auto part : kParts) {
    if (part.data() != kWeights) CopySpecified(config, part, &settings);
  }
  CopyField(config, "optimizer", &settings);
  if (IsAnySpecified(config, kWeights)) {
    settings.train = trained;
    settings.specified.emplace("train");
  }
  return ToJson(settings);
}

TrainConfig WithTrainingSettings(TrainConfig config, const OnnxModel& model) {
  const auto settings = ReadSettings(model);
  if (!settings.ok()) return config;
  const TrainConfig given = config;
  for (const auto part : {std::span<const char* const>(kLoss), std::span<const char* const>(kClip),
                          std::span<const char* const>(kWeights)}) {
    if (!IsAnySpecified(given, part)) CopySpecified(*settings, part, &config);
  }
  if (IsAnySpecified(given, kRule)) return config;
  CopySpecified(*settings, kRule, &config);
  const bool finds_rate = given.lr_find || given.automatic;
  for (const char* number : kNumbers) {
    const bool own = IsSpecified(given, number) || (finds_rate && number == kNumbers[0]);
    if (!own && IsSpecified(*settings, number)) CopyField(*settings, number, &config);
  }
  return config;
}

std::string DescribeTrainingSettings(const TrainConfig& config, const OnnxModel& model) {
  const auto settings = ReadSettings(model);
  if (!settings.ok()) return "";
  std::vector<std::string> taken;
  for (const auto part : kParts) {
    for (const char* name : part) {
      const ConfigField& field = *FindField(name);
      const std::vector<std::string> texts = FieldTexts(config, field);
      if (IsSpecified(*settings, name) && texts == FieldTexts(*settings, field))
        taken.push_back(StrCat("`", name, "` ", absl::StrJoin(texts, ",")));
    }
  }
  return absl::StrJoin(taken, ", ");
}

}  // namespace onnxtrain
