// Opens samples for a model and binds columns to inputs and labels.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/data/image/picture_dataset.h"
#include "frontend/data/load/cache.h"
#include "frontend/data/transform/transform.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"
#include "optim/plan/column_choice.h"
#include "optim/plan/data_split.h"
#include "optim/plan/media_plan.h"
#include "optim/plan/text_setup.h"
#include "optim/step/loss.h"

namespace onnxtrain {

// Parses config.cache, the memory for decoded samples; returns null for "none".
absl::StatusOr<std::shared_ptr<CacheBudget>> MakeCacheBudget(const TrainConfig& config);

// Makes the data set keep the decoded columns of its inputs in memory. Fails if all of it is in memory already.
absl::Status KeepInMemory(const TrainConfig& config, const std::string& path,
                          const std::shared_ptr<CacheBudget>& budget, BoundData* bound);

// A data file bound to a model by input, label, normalize, header and the model's preprocess.json.
struct OpenedData {
  BoundData bound;
  std::string normalize;                      // normalization of the images; "" if there are none
  std::optional<PicturePreprocess> pictures;  // set if picture files feed an input
  std::optional<AugmentedArrays> arrays;      // pictures in arrays that `augment` changes
  std::optional<AudioPreprocess> audio;       // set if sound files feed an input
  int own_columns = 0;                        // number of columns of the file; the others were added
  std::vector<std::string> classes;  // names from the training data or the model file, in the order of the scores
  std::vector<ColumnTransform> transforms;  // transforms of the file's columns
  TextSetup text;                           // columns of text, and their tokenizer
  std::optional<HeldOut> held_out;          // set by DataRequest::fit if eval_split is set
  std::string own_loss;                     // the output of a language model that is its loss, if it has no other

  // Sets the loss to that output if no other loss or output was chosen.
  void ChooseOwnLoss(LossSpec* loss) const;
};

struct DataRequest {
  std::string path, field;  // errors name the field
  bool eval_split = false;
  bool want_label = true;
  bool same_columns = false;   // fails if the file lacks a column that the model was trained on
  bool model_classes = true;   // the model file may name the classes
  bool fit = false;            // fits encode, fill and standardize to the training samples that eval_split leaves
  std::string leave_out = {};  // a column that is neither input nor label
  std::vector<FolderColumn> folders = {};   // opens these instead of a source of data
  std::shared_ptr<CacheBudget> cache = {};  // keeps decoded samples; null: keeps none
  std::optional<TextSetup> text = {};       // setup of the training data; nullopt: from MakeTextSetup
  std::vector<RawInput> raw_inputs = {};    // inputs that take strings or missing values
  bool hold_out = true;                     // eval_split applies to the samples of the file
};

absl::StatusOr<OpenedData> OpenData(const TrainConfig& config, const OnnxModel& model,
                                    const std::optional<Preprocess>& before, const DataRequest& request,
                                    const LossSpec& loss);

// Returns true for a table in a text file, such as .csv.
bool IsTableFile(const std::string& path);

}  // namespace onnxtrain
