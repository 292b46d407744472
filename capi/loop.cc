// Fit and EvaluateAll: loops over batches from a callback.
#include <limits>
#include <utility>

#include "capi/status.h"
#include "capi/tensors.h"
#include "capi/trainer.h"
#include "frontend/base/status.h"

namespace onnxtrain::capi {

// Returns false at the end of the data.
absl::StatusOr<bool> Trainer::NextBatch(const OnnxtrainCallbacks& callbacks, std::vector<NamedTensorView>* batch) {
  if (cancelled_) return absl::CancelledError("the trainer is cancelled");
  const OnnxtrainTensor* tensors = nullptr;
  uint64_t count = 0;
  if (const int failed = callbacks.next_batch(callbacks.user, &tensors, &count))
    return CallbackFailed("next_batch", failed);
  if (count == 0) return false;
  ASSIGN_OR_RETURN(*batch, ViewTensors(tensors, count));
  return true;
}

void Trainer::LogNotes(const OnnxtrainCallbacks& callbacks) {
  if (callbacks.log == nullptr || std::exchange(logged_notes_, true)) return;
  for (const std::string& line : run_.data.surgery) callbacks.log(callbacks.user, line.c_str());
  callbacks.log(callbacks.user, run_.loss_text.c_str());
}

// Passes warnings and notes of the recorder to the log callback.
void Trainer::LogRecorded(const OnnxtrainCallbacks& callbacks) {
  if (callbacks.log == nullptr || recorded_ == nullptr) return;
  for (const std::string& line : recorded_->TakeLines()) callbacks.log(callbacks.user, line.c_str());
}

absl::Status Trainer::ReportProgress(const OnnxtrainCallbacks& callbacks, const OnnxtrainStepResult& result) {
  if (result.skipped > 0 && callbacks.log != nullptr) {
    const std::string line = StrCat("update ", result.step, " skipped: a gradient is not finite");
    callbacks.log(callbacks.user, line.c_str());
  }
  LogRecorded(callbacks);
  if (callbacks.progress == nullptr) return absl::OkStatus();
  const int failed = callbacks.progress(callbacks.user, &result);
  return failed == 0 ? absl::OkStatus() : CallbackFailed("progress", failed);
}

absl::Status Trainer::Fit(const OnnxtrainCallbacks& callbacks, uint64_t max_steps, OnnxtrainStepResult* result) {
  LogNotes(callbacks);
  const bool reports = callbacks.progress != nullptr || callbacks.log != nullptr || result != nullptr;
  OnnxtrainStepResult last = {};
  std::vector<NamedTensorView> batch;
  for (uint64_t step = 0; max_steps == 0 || step < max_steps; ++step) {
    ASSIGN_OR_RETURN(const bool more, NextBatch(callbacks, &batch));
    if (!more) break;
    RETURN_IF_ERROR(Step(batch, reports ? &last : nullptr));
    if (result != nullptr) *result = last;
    RETURN_IF_ERROR(ReportProgress(callbacks, last));
  }
  if (result != nullptr) *result = last;
  return absl::OkStatus();
}

absl::Status Trainer::AddMetric(const OnnxtrainCallbacks& callbacks, const std::vector<NamedTensorView>& batch,
                                double* sum, double* weight) {
  std::vector<OnnxtrainTensor> tensors, described;
  for (const NamedTensorView& view : batch) tensors.push_back(Describe(view.name, view.tensor));
  ASSIGN_OR_RETURN(const auto outputs, Predict(batch));
  for (const auto& [name, value] : outputs) described.push_back(Describe(name, value));
  double of_batch = 0, weight_of_batch = 0;
  if (const int failed = callbacks.metric(callbacks.user, tensors.data(), tensors.size(), described.data(),
                                          described.size(), &of_batch, &weight_of_batch))
    return CallbackFailed("metric", failed);
  *sum += of_batch;
  *weight += weight_of_batch;
  return absl::OkStatus();
}

absl::Status Trainer::EvaluateAll(const OnnxtrainCallbacks& callbacks, OnnxtrainEvaluation* result, double* metric) {
  OnnxtrainEvaluation all = {};
  double sum = 0, weight = 0, loss = 0;
  std::vector<NamedTensorView> batch;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, NextBatch(callbacks, &batch));
    if (!more) break;
    ASSIGN_OR_RETURN(const OnnxtrainEvaluation part, Evaluate(batch));
    loss += part.loss * part.weight;
    all.weight += part.weight;
    all.correct += part.correct;
    all.targets += part.targets;
    all.samples += part.samples;
    if (callbacks.metric != nullptr) RETURN_IF_ERROR(AddMetric(callbacks, batch, &sum, &weight));
  }
  if (all.samples == 0) return Invalid("there are no batches to evaluate");
  all.loss = all.weight > 0 ? loss / all.weight : std::numeric_limits<double>::quiet_NaN();
  if (result != nullptr) *result = all;
  RETURN_IF_ERROR(RecordEvaluation(all));
  if (metric != nullptr) *metric = sum / weight;
  return absl::OkStatus();
}

}  // namespace onnxtrain::capi
