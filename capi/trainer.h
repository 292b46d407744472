// The object of an OnnxtrainTrainer handle. It serves one call at a time, which another thread may cancel.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "capi/onnxtrain.h"
#include "frontend/base/cancellation.h"
#include "optim/plan/training_run.h"
#include "optim/record/caller_run.h"
#include "optim/record/checkpoint/resume.h"

namespace onnxtrain::capi {

class Trainer {
 public:
  static absl::StatusOr<std::shared_ptr<Trainer>> Create(const std::shared_ptr<const OnnxModel>& model,
                                                         const char* config, const CallerSample& sample);

  void Cancel() { cancelled_ = true; }
  void ClearCancel() { cancelled_ = false; }

  // Calls work(), unless another call works on the trainer or the trainer is cancelled.
  template <typename Work>
  absl::Status Run(const Work& work) {
    if (busy_.exchange(true, std::memory_order_acquire)) return absl::AbortedError("another call works on the trainer");
    const std::unique_ptr<std::atomic<bool>, Unlock> lock(&busy_);
    if (cancelled_) return absl::CancelledError("the trainer is cancelled");
    const CancelScope scope(&cancelled_);
    absl::Status status = work();
    run_.batches.Clear();  // drops views of the caller's memory
    return status;
  }

  // The following functions must be called within Run.
  const std::vector<CallerTensor>& tensors() const { return run_.batches.tensors(); }
  absl::Status Step(std::span<const NamedTensorView> batch, OnnxtrainStepResult* result);
  absl::Status Accumulate(std::span<const NamedTensorView> batch);
  absl::Status Apply(OnnxtrainStepResult* result);
  absl::StatusOr<GradientResult> GetGradients(std::span<const NamedTensorView> batch, GradientsOf of);
  absl::StatusOr<OnnxtrainEvaluation> Evaluate(std::span<const NamedTensorView> batch);
  absl::StatusOr<std::map<std::string, HostTensor>> Predict(std::span<const NamedTensorView> batch);
  absl::StatusOr<std::map<std::string, HostTensor>> GetParameters(const char* name);
  absl::StatusOr<OnnxtrainTensor> ViewParameter(const char* name);
  absl::Status SetParameters(std::span<const NamedTensorView> parameters);
  absl::StatusOr<double> GetLearningRate();
  absl::Status SetLearningRate(double rate);
  absl::StatusOr<std::string> SaveState() { return SaveSessionState(session()); }
  absl::Status LoadState(std::string_view bytes);
  int64_t CountSteps() { return session().steps(); }
  absl::Status RecordEvaluation(const OnnxtrainEvaluation& evaluation);
  absl::StatusOr<std::string> FinishRun();
  absl::Status ExportToFile(const std::string& path);
  absl::StatusOr<std::string> ExportToBytes();
  absl::Status Fit(const OnnxtrainCallbacks& callbacks, uint64_t max_steps, OnnxtrainStepResult* result);
  absl::Status EvaluateAll(const OnnxtrainCallbacks& callbacks, OnnxtrainEvaluation* result, double* metric);

 private:
  struct Unlock {
    void operator()(std::atomic<bool>* busy) const { busy->store(false, std::memory_order_release); }
  };
  explicit Trainer(TrainingRun run) : run_(std::move(run)) {}
  Session& session() { return *run_.session; }
  // Calls update(), and records the update if the run has a folder.
  template <typename Update>
  absl::Status Record(OnnxtrainStepResult* result, int64_t samples, const Update& update);
  absl::Status CheckOpen() const;
  absl::StatusOr<StepReport> Report();
  absl::Status ReportEarlierSteps();
  absl::Status ReportStep(OnnxtrainStepResult* result);
  // Calls work(), with `average` and if the session keeps averages of the weights, on these instead of the weights.
  template <typename Work>
  auto WithAverage(bool average, const Work& work) -> decltype(work());
  absl::StatusOr<std::map<std::string, HostTensor>> WeightsToExport();
  absl::StatusOr<StateTensor> FindParameter(std::string_view name);
  absl::StatusOr<bool> NextBatch(const OnnxtrainCallbacks& callbacks, std::vector<NamedTensorView>* batch);
  absl::Status ReportProgress(const OnnxtrainCallbacks& callbacks, const OnnxtrainStepResult& result);
  void LogNotes(const OnnxtrainCallbacks& callbacks);
  void LogRecorded(const OnnxtrainCallbacks& callbacks);
  absl::Status AddMetric(const OnnxtrainCallbacks& callbacks, const std::vector<NamedTensorView>& batch, double* sum,
                         double* weight);

  TrainingRun run_;
  std::unique_ptr<CallerRun> recorded_;              // with `out`
  std::map<std::string, Type, std::less<>> viewed_;  // own the shapes in results of ViewParameter
  bool logged_notes_ = false;
  double rate_factor_ = 1;
  bool unreported_ = false;  // there are updates since the last report
  int64_t accumulated_ = 0;  // samples since the last update
  std::atomic<bool> busy_{false}, cancelled_{false};
};

}  // namespace onnxtrain::capi
