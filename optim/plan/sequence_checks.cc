#include "optim/plan/sequence_checks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/data/load/token_batches.h"
#include "optim/step/variable_extents.h"

namespace onnxtrain {
namespace {

constexpr size_t kMostSizes = 64;  // of samples; those beyond count as the greatest one

using StepsBySize = std::map<VariableExtents, int64_t>;

int64_t CountSteps(const PreparedModel& prepared, size_t term) {
  const LossTerm& t = prepared.loss.terms[term];
  return prepared.model.graph.type(t.value).shape[1 - t.batch_axis()];
}

// What a batch of samples like this one is padded to.
VariableExtents PaddedExtents(const SessionOptions& options, const Dataset& data, int64_t i) {
  if (options.variable_inputs.empty()) return {};
  if (options.variable_extents == 1) return {RoundUpLength(data.Length(i), GreatestExtents(options)[0]), 0};
  const PictureExtents extents = data.Extents(i);
  return {extents.padded_height, extents.padded_width};
}

// By term of the loss; of the greatest size, too.
absl::StatusOr<std::vector<StepsBySize>> CountStepsBySize(PreparedModels& models, const SessionOptions& options,
                                                          const PreparedModel& prepared, const Dataset& data) {
  std::vector<StepsBySize> steps(prepared.loss.terms.size());
  const auto add = [&](const VariableExtents& extents, const PreparedModel& model) {
    for (size_t term = 0; term < steps.size(); ++term) {
      if (prepared.loss.terms[term].form == LabelForm::kSequence) steps[term][extents] = CountSteps(model, term);
    }
  };
  std::set<VariableExtents> seen = {GreatestExtents(options)};
  add(GreatestExtents(options), prepared);
  if (options.variable_inputs.empty()) return steps;
  for (int64_t i = 0; i < data.size() && seen.size() < kMostSizes; ++i) {
    const VariableExtents extents = PaddedExtents(options, data, i);
    if (!seen.insert(extents).second) continue;
    ASSIGN_OR_RETURN(const PreparedModel at,
                     models.Prepare(PrepareAt(options, extents), options.micro_batch, true, false));
    add(extents, at);
  }
  return steps;
}

}  // namespace

absl::StatusOr<std::vector<SequenceCheck>> MakeSequenceChecks(PreparedModels& models, const SessionOptions& options,
                                                              const PreparedModel& prepared, const BoundData& data) {
  std::vector<SequenceCheck> checks;
  const LossChoice& loss = prepared.loss;
  const auto aligns = [](const LossTerm& term) { return term.form == LabelForm::kSequence; };
  if (std::ranges::none_of(loss.terms, aligns) || data.dataset->streams()) return checks;
  ASSIGN_OR_RETURN(std::vector<StepsBySize> steps, CountStepsBySize(models, options, prepared, *data.dataset));
  for (size_t term = 0; term < loss.terms.size(); ++term) {
    if (!aligns(loss.terms[term])) continue;
    const auto feed = std::ranges::find(loss.feeds, loss.terms[term].feed, &LossFeed::name);
    const BoundLabel* label = FindBoundLabel(data, feed->label);
    if (label == nullptr) continue;  // MakeTrainData refuses such data
    checks.push_back({.columns = label->columns,
                      .ignore_index = options.loss.ignore_index,
                      .blank = std::llround(OptionOr(loss.terms[term].options, "blank", 0)),
                      .steps = [options, source = data.dataset, by_size = std::move(steps[term])](int64_t i) {
                        const auto found = by_size.find(PaddedExtents(options, *source, i));
                        return found != by_size.end() ? found->second : by_size.at(GreatestExtents(options));
                      }});
  }
  return checks;
}

}  // namespace onnxtrain
