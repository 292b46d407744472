// The first stage of a run: the model, after surgery, and the samples bound to it, from files, a calling program or
// synthetic.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"
#include "optim/config/unused_fields.h"
#include "optim/loop/trainer.h"
#include "optim/plan/caller_samples.h"
#include "optim/plan/open_data.h"
#include "optim/step/loss.h"
#include "optim/step/prepared_models.h"
#include "optim/step/session.h"

namespace onnxtrain {

// The origin of the samples of a run: the files of config.data; if that is empty, synthetic samples or the batches of a
// calling program.
struct SampleSource {
  const CallerSample* caller = nullptr;  // set if a program passes its batches
  std::optional<int64_t> batch;          // batch size of synthetic samples; nullopt: SyntheticBatchSize
  bool one_batch = false;                // synthetic samples are one global batch, to plan or to time an update
};

struct TrainingData {
  std::shared_ptr<const OnnxModel> model;
  std::shared_ptr<PreparedModels> models;  // imports of `model`, shared by every stage and the session
  std::vector<std::string> surgery;        // the changes to the model, a line each
  std::vector<std::string> fresh;          // weights of a new head
  LossSpec loss;
  OpenedData train, eval;              // bound.dataset is null if there is none
  std::string train_text, eval_text;   // path, or a description of synthetic samples
  std::string preprocess_path;         // path of the preprocess.json that was read; "" if none was
  bool synthetic = false;              // samples are synthetic
  bool one_batch = false;              // as in SampleSource
  int64_t synthetic_batch = 0;         // the global batch of synthetic samples
  bool eval_is_part_of_train = false;  // both are views of one data set

  bool has_samples() const { return train.bound.dataset != nullptr; }  // false: a program passes its batches
  bool has_eval() const { return eval.bound.dataset != nullptr; }
};

// Opens, binds and splits config.data and eval_data, or the samples of `source`, and applies surgery, which may need
// the labels.
absl::StatusOr<TrainingData> LoadTrainingData(const TrainConfig& config, std::shared_ptr<const OnnxModel> model,
                                              const SampleSource& source);

// Returns the number of updates of a run on synthetic samples.
int64_t SyntheticSteps(const TrainConfig& config);

// Returns true if two samples have different lengths.
bool LengthsDiffer(const Dataset& data);

// Returns the facts of such a run. `config` includes the decisions made so far.
RunFacts MakeRunFacts(const TrainConfig& config, const TrainingData& data, const LossChoice& loss);

// Returns the global batch of a run without data, which only shows that the model trains: GlobalBatchSize. If nobody
// chose the size, halves it while a step would take long, but not below 2, which batch statistics need. `options` are
// those of the run's import.
int64_t SyntheticBatchSize(const TrainConfig& config, PreparedModels& models, const PrepareOptions& options);

// Returns the end of an error message for a model imported with assumed extents: how to specify the right ones. Returns
// "" if no dimension is free.
std::string DescribeFreeDims(const OnnxModel& model, const std::map<std::string, int64_t>& dims);

// Makes `size` samples, a function of the seed, with the shapes of `import`. Integer inputs that index a table are in
// range; masks are ones. `import` (MakeImportOptions) and `loss` are those of the run. Labels fit the outputs of
// micro-batches of `micro_batch`, whose shape may depend on it (scores of samples against each other).
absl::StatusOr<BoundData> MakeSyntheticData(PreparedModels& models, const ImportOptions& import, const LossSpec& loss,
                                            int64_t size, int64_t micro_batch, uint64_t seed);

}  // namespace onnxtrain
