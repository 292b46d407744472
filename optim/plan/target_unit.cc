#include "optim/plan/target_unit.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/data/transform/transform.h"

namespace onnxtrain {
namespace {

absl::Status CheckRegression(const LossChoice& loss) {
  const LossTerm& term = loss.leading();
  if (loss.terms.size() > 1) return Invalid("the loss is a sum of several");
  if (term.form != LabelForm::kElements || !term.function->final_activations.empty())
    return Invalid("loss ", loss.name, " on '", term.output, "' is no regression");
  return absl::OkStatus();
}

FeedSpec& FindSpec(TrainData* data, const std::string& feed) {
  return *std::ranges::find(data->specs, feed, &FeedSpec::feed);
}

}  // namespace

absl::StatusOr<ScaledTargets> ScaleTargets(const OnnxModel& model, const PreparedModel& prepared, TrainData* train,
                                           TrainData* eval) {
  RETURN_IF_ERROR(CheckRegression(prepared.loss));
  const LossTerm& term = prepared.loss.leading();
  ScaledTargets scaled;
  ASSIGN_OR_RETURN(scaled.layer, FindOutputLayer(model, term.output));
  FeedSpec& spec = FindSpec(train, term.feed);
  ASSIGN_OR_RETURN(Standardization fitted, FitStandardization(*train->dataset, spec.columns));
  if (fitted.shift.size() > 1 && spec.sample.elements() != scaled.layer.targets)
    return Invalid("a sample has ", spec.sample.elements(), " targets, the last layer of '", term.output, "' ",
                   scaled.layer.targets);
  spec.shift = fitted.shift;
  spec.divisor = fitted.divisor;
  if (eval->dataset != nullptr) {
    FeedSpec& other = FindSpec(eval, term.feed);
    other.shift = spec.shift;
    other.divisor = spec.divisor;
  }
  scaled.unit = {.scale = std::move(fitted.divisor), .offset = std::move(fitted.shift)};
  return scaled;
}

}  // namespace onnxtrain
