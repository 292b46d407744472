// The first stage of a run: the model, after surgery, and the samples that are bound to it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"
#include "optim/config/unused_fields.h"
#include "optim/plan/caller_samples.h"
#include "optim/plan/open_data.h"
#include "optim/step/loss.h"
#include "optim/step/prepared_models.h"

namespace onnxtrain {

// Where the samples of a run come from: the files of config.data; where that is empty, they are made up, or a program
// hands over batches.
struct SampleSource {
  const CallerSample* caller = nullptr;  // of such a program
  std::optional<int64_t> batch;          // of made-up samples; nullopt: of SyntheticBatchSize
  bool one_batch = false;                // made-up samples are one global batch, to plan or to time an update
};

struct TrainingData {
  std::shared_ptr<const OnnxModel> model;
  std::shared_ptr<PreparedModels> models;  // imports of it, shared by every stage and the session
  std::vector<std::string> surgery;        // what was done to the model, a line each
  std::vector<std::string> fresh;          // weights of a new head
  LossSpec loss;
  OpenedData train, eval;              // bound.dataset is null where there is none
  std::string train_text, eval_text;   // path, or how it was made
  std::string preprocess_path;         // of the preprocess.json that was read, else ""
  bool synthetic = false;              // samples were made up
  bool one_batch = false;              // as in SampleSource
  int64_t synthetic_batch = 0;         // and are for steps of so many
  bool eval_is_part_of_train = false;  // both views of one data set

  bool has_samples() const { return train.bound.dataset != nullptr; }  // else a program hands them over
  bool has_eval() const { return eval.bound.dataset != nullptr; }
};

// Opens, binds and splits config.data and eval_data, or what `source` has in their place, and applies surgery, which
// may need the labels.
absl::StatusOr<TrainingData> LoadTrainingData(const TrainConfig& config, std::shared_ptr<const OnnxModel> model,
                                              const SampleSource& source);

// The updates that a run on made-up samples makes.
int64_t SyntheticSteps(const TrainConfig& config);

// Have two samples different lengths?
bool LengthsDiffer(const Dataset& data);

// Facts of such a run. `config`: with what was decided so far.
RunFacts MakeRunFacts(const TrainConfig& config, const TrainingData& data, const LossChoice& loss);

}  // namespace onnxtrain
