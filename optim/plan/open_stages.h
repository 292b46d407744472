// The stages of OpenData (open_data.h), each a function of the results of the stages before it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"
#include "optim/plan/language_data.h"
#include "optim/plan/open_data.h"
#include "optim/plan/text_setup.h"
#include "optim/step/loss.h"

namespace onnxtrain {

// How the samples of a model are read. References are to the arguments of OpenData.
struct ReadingPlan {
  const OnnxModel& model;
  const std::optional<Preprocess>& before;  // the model's preprocess.json
  const LossSpec& loss;
  TrainConfig config;  // with the settings that files of the model make where the user does not
  DataRequest request;
  DatasetOptions options = {};
  ImportOptions import = {};                                     // before the data is known
  std::map<std::string, int64_t> dims = {};                      // values of named dimensions
  std::map<std::string, std::string> constants = {};             // texts by input
  std::map<std::string, std::vector<std::string>> columns = {};  // that are named for an input
  FoundAlphabet alphabet = {};
  std::vector<std::string> classes = {};    // in the order of the scores
  std::set<std::string> class_labels = {};  // as in BindSpec, as far as is known before the loss is chosen
  std::string normalize = {};               // of pixels
  std::string pictures_note = {};           // the settings of pictures that files of the model make
  TextSetup text = {};
  std::optional<LanguageModel> language = {};  // set if the model may predict the next token of the data
  bool makes_blocks = false;                   // it does, unless the data turns out to hold samples of tokens
};

// Plans classes, pictures, sounds and text (reading_plan.cc).
absl::StatusOr<ReadingPlan> PlanReading(const TrainConfig& config, const OnnxModel& model,
                                        const std::optional<Preprocess>& before, const DataRequest& request,
                                        const LossSpec& loss);

// Samples with the columns that the model's inputs and labels need.
struct ModelSamples {
  OpenedSamples samples;
  BindSpec spec;    // the labels and token columns that are known
  OpenedData data;  // without its bound columns
};

// Opens the samples. Replaces texts by tokens or classes, and adds the lengths of sounds (sample_columns.cc).
absl::StatusOr<ModelSamples> ReadModelSamples(const ReadingPlan& plan);

// Chooses the columns of inputs and labels, and binds them (bind_samples.cc).
absl::StatusOr<OpenedData> BindSamples(const ReadingPlan& plan, ModelSamples read);

// Suggests `on_bad_sample` in errors about a row if the model was trained on data with these columns: few rows of such
// data are unreadable.
absl::Status ExplainBadSample(const ReadingPlan& plan, const absl::Status& status);

}  // namespace onnxtrain
