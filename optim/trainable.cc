#include "optim/trainable.h"

#include <map>

#include "frontend/base/status.h"
#include "optim/fixed_tables.h"
#include "optim/weight_globs.h"

namespace onnxtrain {
namespace {

std::string ReasonNotTrainable(InputKind kind, const Type& type) {
  if (kind == InputKind::kState) return "running statistics";
  if (!IsFloat(type.dtype)) return "not a floating-point tensor";
  return "reaches no output through differentiable operators";
}

}  // namespace

std::string DisplayName(const WeightDecision& weight) {
  return weight.alias.empty() ? weight.name : StrCat(weight.alias, " (", weight.name, ")");
}

absl::StatusOr<std::vector<WeightDecision>> ChooseTrainable(ImportedModel* model, const TrainableSpec& spec) {
  WeightGlobs train("train", spec.train), freeze("freeze", spec.freeze);
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < model->graph.inputs().size(); ++i) index[model->graph.inputs()[i].name] = i;
  std::vector<WeightDecision> decisions;
  for (const ImportedWeight& w : model->weights) {
    const size_t input = index.at(w.name);
    const InputKind kind = model->graph.inputs()[input].kind;
    WeightDecision d{.name = w.name, .type = w.value.type(), .consumer = w.consumer, .alias = w.alias};
    const std::string* wanted = train.Match(w);
    const std::string* frozen = freeze.Match(w);
    if (kind != InputKind::kParameter) {
      d.why = ReasonNotTrainable(kind, d.type);
    } else if (frozen != nullptr) {
      d.why = StrCat("matches `freeze` ", *frozen);
    } else if (wanted == nullptr && !w.fixed.empty()) {
      d.why = StrCat(w.fixed, ": fixed unless `train` names it");
    } else if (wanted == nullptr && IsSinusoidTable(w.value)) {
      d.why = "a table of sines and cosines: fixed unless `train` names it";
    } else if (wanted == nullptr && IsAttentionMask(w.value)) {
      d.why = "a mask of zeros and one large negative number: fixed unless `train` names it";
    } else if (!spec.train.empty() && wanted == nullptr) {
      d.why = "matches no `train`";
    } else {
      d.trained = true;
      d.why = wanted != nullptr ? StrCat("matches `train` ", *wanted) : "trained by default";
    }
    if (kind == InputKind::kParameter && !d.trained) model->graph.SetInputKind(input, InputKind::kFrozen);
    decisions.push_back(std::move(d));
  }
  RETURN_IF_ERROR(train.CheckAllMatched());
  RETURN_IF_ERROR(freeze.CheckAllMatched());
  return decisions;
}

}  // namespace onnxtrain
