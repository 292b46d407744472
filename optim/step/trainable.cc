#include "optim/step/trainable.h"

#include <algorithm>
#include <map>

#include "frontend/base/status.h"
#include "optim/config/weight_globs.h"
#include "optim/step/fixed_tables.h"

namespace onnxtrain {
namespace {

// Texts by WeightReason; the matching glob is appended.
constexpr const char* kReasonTexts[] = {
    "running statistics",
    "not a floating-point tensor",
    "reaches no output through differentiable operators",
    "trained by default",
    "matches `train` ",
    "matches `freeze` ",
    "matches no `train`",
    "a buffer of the exported module: fixed unless `train` names it",
    "a constant of the exported module: fixed unless `train` names it",
    "it shifts or scales the inputs of the model: fixed unless `train` names it",
    "a table of sines and cosines: fixed unless `train` names it",
    "a mask of zeros and one large negative number: fixed unless `train` names it",
    "a table of coordinates of a grid: fixed unless `train` names it",
    "powers of equally spaced numbers: fixed unless `train` names it",
    "rows of equally spaced numbers: fixed unless `train` names it",
    "filters of a formula: fixed unless `train` names it",
    "fixed beside adapters unless `train` names it",
};

WeightReason ReasonNotTrainable(InputKind kind, const Type& type) {
  if (kind == InputKind::kState) return WeightReason::kStatistics;
  return IsFloat(type.dtype) ? WeightReason::kUnreached : WeightReason::kNotFloat;
}

// Why a trainable weight that no glob matches is trained or not.
WeightReason ReasonByDefault(const ImportedWeight& w, const TrainableSpec& spec, FixedTables* tables) {
  if (!spec.adapters.empty()) {
    const bool adapter = std::ranges::find(spec.adapters, w.name) != spec.adapters.end();
    return adapter ? WeightReason::kDefault : WeightReason::kBase;
  }
  switch (w.fixed) {
    case FixedWeight::kBuffer:
      return WeightReason::kBuffer;
    case FixedWeight::kConstant:
      return WeightReason::kConstant;
    case FixedWeight::kStandardizer:
      return WeightReason::kStandardizer;
    case FixedWeight::kNo:
    case FixedWeight::kHalf:
      break;
  }
  switch (tables->Find(w)) {
    case FixedTable::kSinusoids:
      return WeightReason::kSinusoids;
    case FixedTable::kMask:
      return WeightReason::kMask;
    case FixedTable::kGrid:
      return WeightReason::kGrid;
    case FixedTable::kPowers:
      return WeightReason::kPowers;
    case FixedTable::kSlopes:
      return WeightReason::kSlopes;
    case FixedTable::kFilters:
      return WeightReason::kFilters;
    case FixedTable::kNone:
      break;
  }
  return spec.train.empty() ? WeightReason::kDefault : WeightReason::kUnmatched;
}

}  // namespace

std::string DisplayName(const WeightDecision& weight) {
  return weight.alias.empty() ? weight.name : StrCat(weight.alias, " (", weight.name, ")");
}

absl::StatusOr<std::vector<WeightDecision>> ChooseTrainable(ImportedModel* model, const TrainableSpec& spec,
                                                            FixedTables* tables) {
  WeightGlobs train("train", spec.train), freeze("freeze", spec.freeze);
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < model->graph.inputs().size(); ++i) index[model->graph.inputs()[i].name] = i;
  std::vector<WeightDecision> decisions;
  for (const ImportedWeight& w : model->weights) {
    const size_t input = index.at(w.name);
    const InputKind kind = model->graph.inputs()[input].kind;
    WeightDecision d{.name = w.name,
                     .type = model->graph.type(model->graph.inputs()[input].value),
                     .consumer = w.consumer,
                     .alias = w.alias};
    const std::string* wanted = train.Match(w);
    const std::string* frozen = freeze.Match(w);
    if (kind != InputKind::kParameter && w.fixed != FixedWeight::kHalf) {
      d.reason = ReasonNotTrainable(kind, d.type);
    } else if (frozen != nullptr) {
      d.reason = WeightReason::kFrozen;
    } else {
      d.reason = wanted != nullptr ? WeightReason::kMatched : ReasonByDefault(w, spec, tables);
    }
    d.trained = d.reason == WeightReason::kMatched || d.reason == WeightReason::kDefault;
    d.why = StrCat(kReasonTexts[static_cast<size_t>(d.reason)], d.reason == WeightReason::kFrozen    ? *frozen
                                                                : d.reason == WeightReason::kMatched ? *wanted
                                                                                                     : "");
    if (kind == InputKind::kParameter && !d.trained) model->graph.SetInputKind(input, InputKind::kFrozen);
    decisions.push_back(std::move(d));
  }
  RETURN_IF_ERROR(train.CheckAllMatched());
  RETURN_IF_ERROR(freeze.CheckAllMatched());
  return decisions;
}

}  // namespace onnxtrain
