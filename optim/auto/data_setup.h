// From a configuration to data that is bound to a model: which columns feed which input, which are labels.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/binding.h"
#include "frontend/data/cache_budget.h"
#include "frontend/data/image/picture_pairs.h"
#include "frontend/data/preprocess.h"
#include "frontend/data/transform.h"
#include "frontend/onnx/import.h"
#include "optim/auto/data_split.h"
#include "optim/auto/text_setup.h"
#include "optim/config.h"
#include "optim/loss.h"
#include "optim/prepare.h"
#include "optim/trainer.h"

namespace onnxtrain {

// A file of data, bound by input, label, normalize, header and by the preprocess.json of the model.
struct OpenedData {
  BoundData bound;
  std::string normalize;                      // of the images, "" where there are none
  std::optional<PicturePreprocess> pictures;  // where an input is fed with files of pictures
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
  bool hold_out = true;                     // eval_split applies to the samples of the file
};

absl::StatusOr<OpenedData> OpenData(const TrainConfig& config, const OnnxModel& model,
                                    const std::optional<Preprocess>& before, const DataRequest& request,
                                    const LossSpec& loss);

// Is it a table of text, as a .csv file?
bool IsTableFile(const std::string& path);
// Does it hold evaluation samples of its own (MNIST's t10k-* in a folder, pictures in val, test …)?
bool HasEvalFiles(const std::string& path);

// What evaluation, prediction and gradients start from.
struct ModelAndData {
  std::shared_ptr<const OnnxModel> model;
  std::optional<Preprocess> before;  // the model's preprocess.json
  OpenedData data;
  LossSpec loss;
};
// config.model and config.data, which must be set. `eval_split`: takes the evaluation files of a folder that has some.
absl::StatusOr<ModelAndData> OpenModelAndData(const TrainConfig& config, bool eval_split, bool want_label);

// The columns, layouts and classes of bound data: what other data of the model must agree with.
Preprocess DescribeBinding(const OpenedData& data);

// Feeds and labels for the trainer, with the checks of their values. Checks every class label against the loss.
absl::StatusOr<TrainData> MakeTrainData(const BoundData& data, const PreparedModel& prepared, int64_t ignore_index);

struct LeftOut {
  std::string line;           // for people; "" where none is left out
  std::vector<int64_t> rows;  // the samples that stay; empty: all
};
// With on_bad_sample skip: leaves out the samples that cannot be read or used (with `labels` also as labels).
absl::StatusOr<LeftOut> LeaveOutBadSamples(const TrainConfig& config, const PreparedModel& prepared, bool labels,
                                           BoundData* data);

// The first `count` samples.
absl::StatusOr<GlobalBatch> ReadGlobalBatch(const TrainData& data, int64_t count);

// config.num_workers; auto: a quarter of the CPUs, 1 to 4, to begin with.
int NumWorkers(const TrainConfig& config);
// As many as auto may come to: all CPUs, up to 8. Else 0.
int MaxWorkers(const TrainConfig& config);

}  // namespace onnxtrain
