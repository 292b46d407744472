// Writes the settings of a run, from which it is repeated and its model is used: config.flags, config.yaml,
// preprocess.json and the tokenizer.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/data/text/tokenizer.h"
#include "optim/config/config.h"
#include "optim/plan/training_run.h"
#include "optim/record/run_folder.h"

namespace onnxtrain {

Preprocess MakePreprocess(const TrainingRun& run);

// Returns the tokenizer of the run's text, which preprocess.json refers to, or else one in the folder of the model,
// which has probably produced the token ids of the data. Null if there is none or it cannot be read.
std::shared_ptr<const Tokenizer> FindTokenizer(const TrainingRun& run);

// `resolved` holds every decision. `origin`: a sentence at the top of config.flags and config.yaml; may be empty.
absl::Status WriteSettings(const TrainingRun& run, const TrainConfig& resolved, const std::string& origin,
                           const OutputFolder& folder);

}  // namespace onnxtrain
