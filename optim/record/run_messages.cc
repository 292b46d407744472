#include "optim/record/run_messages.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "optim/plan/surgery.h"

namespace onnxtrain {
namespace {

double Chance(const LossChoice& loss) {
  return loss.num_classes() > 1 ? 1.0 / static_cast<double>(loss.num_classes()) : 0.5;
}

}  // namespace

void RunWarnings::Add(const std::string& text) {
  if (std::find(texts_.begin(), texts_.end(), text) != texts_.end()) return;
  texts_.push_back(text);
  display_.ShowWarning(text);
}

void RunWarnings::CheckEvent(const TrainEvent& event) {
  const double scale = event.report.loss_scale;
  if (scale != 0 && scale < 1)
    Add("the loss scale fell below 1: gradients overflow fp16 at any scale (bf16 has float32's range)");
  CheckOutliers(event.outliers);
  CheckGradient(event);
}

// Warns of the first, tenth, hundredth … outlier of a kind; metrics.jsonl has all.
void RunWarnings::CheckOutliers(const std::vector<Outlier>& outliers) {
  for (const Outlier& o : outliers) {
    int64_t number = ++outliers_[o.of], rest = number;
    while (rest % 10 == 0) rest /= 10;
    if (rest != 1) continue;
    Add(StrCat("update ", o.step, ": ", o.of == Outlier::Of::kLoss ? "the loss" : "the gradient norm", " is ",
               FormatNumber(o.value), ", the median of the updates before it ", FormatNumber(o.median),
               number == 1 ? " (`dump_order` lists the samples of each update)"
                           : StrCat("; ", number, " such updates so far")));
  }
}

// Warns of a gradient norm of exactly 0: rounding makes it positive unless the loss depends on no trained weight.
void RunWarnings::CheckGradient(const TrainEvent& event) {
  const StepReport& report = event.report;
  if (event.kind != TrainEvent::Kind::kStep || report.weight <= 0 || report.skipped > 0 || report.grad_norm != 0)
    return;
  if (std::exchange(warned_of_zero_gradient_, true)) return;
  Add(StrCat("update ", event.step, ": the gradient of every trained weight is exactly 0: none of them changes ",
             "the loss of these samples (`logits` and `loss` choose what is trained on)"));
}

void RunWarnings::CheckInitialEvaluation(const EvalMetrics& before) {
  const ModelOrigin& origin = run_.optimizer.origin;
  if (!origin.trained || HasSurgery(run_.config) || before.accuracy < 0 ||
      before.accuracy > 1.5 * Chance(run_.session->loss()))
    return;
  const std::string& normalize = run_.data.train.normalize;
  Add(absl::StrFormat(
      "the model looks trained (%s) but starts at %.1f%% accuracy, which is chance: the preprocessing is "
      "probably wrong%s",
      origin.why, 100 * before.accuracy, normalize.empty() ? "" : StrCat(" (`normalize` is ", normalize, ")")));
}

void RunWarnings::CheckResult(const TrainResult& r) {
  if (!run_.optimizer.origin.trained || r.eval.samples == 0 || r.steps == 0) return;
  const bool accuracy = r.eval.accuracy >= 0;
  const double before = accuracy ? r.eval_before.accuracy : r.eval_before.loss;
  const double after = accuracy ? r.eval.accuracy : r.eval.loss;
  // A small loss of accuracy is noise as long as the loss falls.
  if (r.eval.loss <= r.eval_before.loss || (accuracy && after >= before)) return;
  Add(StrCat("the model looks trained and ends worse than it began (", accuracy ? "accuracy " : "loss ",
             FormatNumber(before), " → ", FormatNumber(after), "): the preprocessing or `lr` ",
             FormatNumber(run_.optimizer.spec.lr), " is probably wrong"));
}

}  // namespace onnxtrain
