// Makes the choices of `auto`: sets fields that nobody specified, from plans and short measurements, with reasons.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/config/config.h"
#include "optim/loop/trainer.h"
#include "optim/plan/step_plan.h"
#include "optim/step/session.h"

namespace onnxtrain {

struct AutoChoice {
  std::string field, value, why;
};

// Sets the fields that need no measurement: mixed_precision if it is auto, and lr_scale if it is auto, the learning
// rate is automatic and the global batch is larger than lr_scale_base.
void SetAutoFields(int64_t global_batch, TrainConfig* config);

// Returns true if the micro-batch size is left to the run.
bool IsMicroBatchOpen(const TrainConfig& config);

// Returns the largest divisor of `global` that is at most `fit`, or `global` itself if `fit` covers all `samples`.
int64_t LargestDivisor(int64_t global, int64_t fit, int64_t samples);

// Returns the seconds of the forward and backward pass of a micro-batch of `samples` samples.
using MeasureMicroBatch = std::function<absl::StatusOr<double>(int64_t samples)>;

struct MicroBatchTime {
  int64_t samples = 0;
  double seconds = 0;
};
// Measures `largest` and then its halves, while they are integers and each needs at least 10 % less time per sample
// than the size before. Returns the fastest. With `fixed`, measures `largest` only.
absl::StatusOr<MicroBatchTime> FastestMicroBatch(int64_t largest, bool fixed, const MeasureMicroBatch& measure);

// Returns the number of reader threads for data that one thread reads in `load_seconds` per update, if an update takes
// `step_seconds`: 0 if reading takes less than 1/50 of the update, and at most `cpus`.
int ChooseWorkers(double load_seconds, double step_seconds, int cpus);

struct TrainingRun;

// Makes the automatic choices of a run for PrepareTraining.
class AutoChooser {
 public:
  // `given` is the configuration as the user wrote it; it must outlive the chooser.
  explicit AutoChooser(const TrainConfig& given) : given_(given) {}

  // Chooses precision, micro-batch and workers. The run must have its backend and data.
  absl::Status Choose(SessionOptions* options, TrainingRun* run);
  // Sets run->choices. The run must have its session.
  absl::Status Finish(TrainingRun* run);

 private:
  void Add(const char* field, const std::string& value, const std::string& why);
  absl::Status FitMicroBatch(SessionOptions* options, TrainingRun* run) const;
  absl::Status ChooseMicroBatch(SessionOptions* options, TrainingRun* run);
  absl::Status ChooseWorkers(const TrainData& train, TrainOptions* options);
  absl::Status AddRecomputation(TrainingRun* run);
  void AddThreads(const TrainingRun& run);
  void AddRateScale(const TrainingRun& run);

  const TrainConfig& given_;
  std::vector<AutoChoice> choices_;
  double step_seconds_ = 0;  // without the optimizer; 0: not measured
};

struct PrecisionChoice {
  std::string name = "no";  // no, tf32, bf16 or fp16; never auto
  std::string why;          // for people; may be empty
  std::string warning;      // for people; may be empty
};

// Sets config.mixed_precision and loss_scale in *options. If config.micro_batch_size is auto, also sets the micro-batch
// in *options and *batch (for `batch.global` and at most `samples`). "auto" times the forward and backward pass of this
// model on this backend in both types, within options->recompute's budget, and chooses bf16 if it is at least 10 %
// faster, or the only type that fits. Fails if not even one sample fits.
absl::StatusOr<PrecisionChoice> ChoosePrecisionAndBatch(const TrainConfig& config,
                                                        const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                                        int64_t samples, BatchPlan* batch, SessionOptions* options);

}  // namespace onnxtrain
