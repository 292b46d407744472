// Opens samples for a model: which columns feed which input, which are labels.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/data/image/image_folder.h"
#include "frontend/data/load/cache_budget.h"
#include "frontend/data/transform/transform.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"
#include "optim/plan/column_choice.h"
#include "optim/plan/data_split.h"
#include "optim/plan/media_plan.h"
#include "optim/plan/text_setup.h"
#include "optim/step/loss.h"

namespace onnxtrain {

// Decoded samples that stay in memory, as `cache` says.

// Parses config.cache; null: "none".
absl::StatusOr<std::shared_ptr<CacheBudget>> MakeCacheBudget(const TrainConfig& config);

// Makes the data set keep what its inputs are fed with. Fails where all of it is in memory already.
absl::Status KeepInMemory(const TrainConfig& config, const std::string& path,
                          const std::shared_ptr<CacheBudget>& budget, BoundData* bound);

// A file of data, bound by input, label, normalize, header and by the preprocess.json of the model.
struct OpenedData {
  BoundData bound;
  std::string normalize;                      // of the images, "" where there are none
  std::optional<PicturePreprocess> pictures;  // where an input is fed with files of pictures
  std::optional<AugmentedArrays> arrays;      // pictures in arrays that `augment` changes
  std::optional<AudioPreprocess> audio;       // where an input is fed with files of sound
  int own_columns = 0;                        // columns of the file; the others were added
  std::vector<std::string> classes;           // of the training data or the model file, in the order of the scores
  std::vector<ColumnTransform> transforms;    // applied to the columns of the file
  TextSetup text;                             // columns of text, and what tokenized them
  std::optional<HeldOut> held_out;            // with DataRequest::fit, where eval_split is set
  std::string own_loss;                       // the output of a language model that is its loss, where it has no other

  // Trains that output where nothing else was chosen.
  void ChooseOwnLoss(LossSpec* loss) const;
};

struct DataRequest {
  std::string path, field;  // errors name the field
  bool eval_split = false;
  bool want_label = true;
  bool same_columns = false;   // fails where the file lacks a column that the model was trained on
  bool model_classes = true;   // the model file may name the classes
  bool fit = false;            // fits encode, fill and standardize to the samples that eval_split leaves for training
  std::string leave_out = {};  // a column that is neither input nor label
  std::vector<FolderColumn> folders = {};   // opens these instead of a source of data
  std::shared_ptr<CacheBudget> cache = {};  // keeps decoded samples; null: keeps none
  std::optional<TextSetup> text = {};       // of the training data; else as MakeTextSetup
  std::vector<RawInput> raw_inputs = {};    // that take strings or missing values
  bool hold_out = true;                     // eval_split applies to the samples of the file
};

absl::StatusOr<OpenedData> OpenData(const TrainConfig& config, const OnnxModel& model,
                                    const std::optional<Preprocess>& before, const DataRequest& request,
                                    const LossSpec& loss);

// Is it a table of text, as a .csv file?
bool IsTableFile(const std::string& path);

}  // namespace onnxtrain
