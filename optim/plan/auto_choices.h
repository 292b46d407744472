// The choices of `auto`: fields that nobody specified, set from plans and short measurements, each with its reason.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/config/config.h"
#include "optim/loop/trainer.h"
#include "optim/step/session.h"

namespace onnxtrain {

struct AutoChoice {
  std::string field, value, why;
};

// Sets the fields that need no measurement of their own: mixed_precision auto, and lr_scale auto where the rate is
// automatic too and the global batch is larger than lr_scale_base.
void SetAutoFields(int64_t global_batch, TrainConfig* config);

// May the micro-batch be chosen?
bool IsMicroBatchOpen(const TrainConfig& config);

// Returns the largest divisor of `global` up to `fit`; `global` itself where `fit` covers all samples.
int64_t LargestDivisor(int64_t global, int64_t fit, int64_t samples);

// Seconds of forward and backward pass of a micro-batch of that many samples.
using MeasureMicroBatch = std::function<absl::StatusOr<double>(int64_t samples)>;

struct MicroBatchTime {
  int64_t samples = 0;
  double seconds = 0;
};
// Measures `largest`, and halves of it as long as they are whole and each takes a tenth less time per sample than the
// one before. Returns the fastest. Where `fixed`, measures `largest` alone.
absl::StatusOr<MicroBatchTime> FastestMicroBatch(int64_t largest, bool fixed, const MeasureMicroBatch& measure);

// Returns how many threads read data that one thread reads in `load_seconds` per update, if an update takes
// `step_seconds`: 0 where that is less than a fiftieth of the update, at most `cpus`.
int ChooseWorkers(double load_seconds, double step_seconds, int cpus);

struct TrainingRun;

// Makes the choices of a run in PrepareTraining.
class AutoChooser {
 public:
  // `given`: as users wrote it; must outlive the chooser.
  explicit AutoChooser(const TrainConfig& given) : given_(given) {}

  // Chooses precision, micro-batch and workers; the run has its backend and data.
  absl::Status Choose(SessionOptions* options, TrainingRun* run);
  // Sets run->choices; the run has its session.
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

}  // namespace onnxtrain
