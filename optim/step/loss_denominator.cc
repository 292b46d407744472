#include "optim/step/loss_denominator.h"

#include <algorithm>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "optim/step/onnx_loss.h"

namespace onnxtrain {
namespace {

// One for each label that is not ignored, or the weight of its class.
Val CountClasses(const LossTerm& term, const LossSpec& spec, Val labels, DType dtype) {
  Builder& b = labels.b();
  const Val ignored = Equal(labels, static_cast<double>(spec.ignore_index));
  Val weights = b.Scalar(dtype, 1);
  if (!spec.class_weights.empty() && term.function->takes.find("class_weights") != std::string_view::npos) {
    const Val table =
        b.Constant(HostTensor::FromDoubles({dtype, {std::ssize(spec.class_weights)}}, spec.class_weights));
    weights = b.Op("Gather", {table, Where(ignored, Number(labels, 0), labels)}, {{"axis", int64_t{0}}});
  }
  return ReduceSum(Where(ignored, b.Scalar(dtype, 0), weights), {}, false);
}

absl::StatusOr<Val> CountTargets(Builder& b, const LossTerm& term, const LossSpec& spec, int64_t batch, DType dtype) {
  if (term.onnx != nullptr && term.onnx->weighted) {
    ASSIGN_OR_RETURN(const Val weight, AppendOnnxLossWeight(b, *term.onnx, batch));
    return Cast(Reshape(weight, {}), dtype);
  }
  if (term.function->mean == LossMean::kSamples || term.form == LabelForm::kNone)
    return b.Scalar(dtype, static_cast<double>(batch));
  const Val labels = b.Wrap(b.graph().FindInput(term.feed)->value);
  if (term.form == LabelForm::kClasses || term.form == LabelForm::kSequence)
    return CountClasses(term, spec, labels, dtype);
  const int64_t per_target = term.form == LabelForm::kDistribution ? std::max<int64_t>(1, labels.dim(-1)) : 1;
  return b.Scalar(dtype, static_cast<double>(labels.type().elements() / per_target));
}

}  // namespace

absl::StatusOr<Val> AppendInverseDenominator(Builder& b, const LossTerm& term, const LossSpec& spec, int64_t batch,
                                             DType dtype) {
  ASSIGN_OR_RETURN(const Val targets, CountTargets(b, term, spec, batch, dtype));
  return Masked(Greater(targets, 0.0), term.factor / targets);
}

}  // namespace onnxtrain
