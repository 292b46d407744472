#include "optim/config/unused_fields.h"

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

bool IsMet(const Condition& condition, const TrainConfig& config, const ConfigField& field, const RunFacts& facts) {
  if (condition.of_value && !DiffersFromDefault(config, field)) return true;
  if (condition.fact != nullptr) return facts.*condition.fact;
  return condition.holds == nullptr || facts.config < condition.from || condition.holds(config);
}

}  // namespace

bool ComparesEvaluations(const TrainConfig& config) {
  return config.lr_scheduler.starts_with("plateau") || config.keep_best > 0 || config.early_stopping_patience > 0 ||
         config.export_weights == "best";
}

std::string ExplainUnused(const TrainConfig& config, const ConfigField& field, const RunFacts& facts) {
  if (facts.makes != 0 && (field.tasks & kTaskGraph) != 0 && (field.tasks & facts.makes) == 0)
    return facts.makes == kTaskExport ? ": has no effect on a model (`gradient_graph`, `training_graph`)"
                                      : ": has no effect on a graph of gradients (`training_graph`)";
  for (const Condition* condition : field.needs) {
    if (condition == nullptr || IsMet(*condition, config, field, facts)) continue;
    const bool about = condition->about != nullptr && !facts.subject.empty();
    return absl::StrReplaceAll(about ? condition->about : condition->otherwise,
                               {{"{value}", absl::StrJoin(FieldTexts(config, field), ",")},
                                {"{subject}", facts.subject.empty() ? "the data" : facts.subject},
                                {"{hint}", facts.hint},
                                {"{division}", config.pipeline > 1 ? "pipeline" : "tensor"}});
  }
  return "";
}

absl::Status RefuseUnused(const TrainConfig& config, const RunFacts& facts) {
  for (const ConfigField& field : ConfigFields()) {
    if (!IsSpecified(config, field)) continue;
    const std::string why = ExplainUnused(config, field, facts);
    if (!why.empty()) return Invalid("`", field.name, "`", why);
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
