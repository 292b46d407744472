// Opens what commands start from: model and data, feeds and labels for the trainer, workers. Plans mixup and cutmix,
// numbers labels, and standardizes regression targets.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/bad_samples.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/onnx/edit/output_layer.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"
#include "optim/loop/trainer.h"
#include "optim/plan/open_data.h"
#include "optim/step/loss.h"
#include "optim/step/prepared_models.h"

namespace onnxtrain {

// Returns true if `path` has separate evaluation samples (MNIST's t10k-* files; pictures in val, test …).
bool HasEvalFiles(const std::string& path);

// Returns the preprocess.json of config.model, if it exists. Drops classes and loss if the configuration changes the
// classes.
absl::StatusOr<std::optional<Preprocess>> ReadPreprocess(const TrainConfig& config);

// The starting point of evaluation, prediction and gradient commands.
struct ModelAndData {
  std::shared_ptr<const OnnxModel> model;
  std::optional<Preprocess> before;  // the model's preprocess.json
  OpenedData data;
  LossSpec loss;
};
// Opens config.model and config.data, which must be set. `eval_split`: uses the evaluation files of a folder if it has
// any.
absl::StatusOr<ModelAndData> OpenModelAndData(const TrainConfig& config, bool eval_split, bool want_label);

// Describes the columns, layouts and classes of bound data, with which other data of the model must agree.
Preprocess DescribeBinding(const OpenedData& data);

// Returns the valid range of the labels of a feed; nullopt: any. The range of class indices includes `ignore_index`.
std::optional<ValueRange> FindLabelRange(const LossChoice& loss, const LossFeed& feed, int64_t ignore_index);

// Makes feeds and labels for the trainer, with value checks. Checks every class label against the loss.
absl::StatusOr<TrainData> MakeTrainData(const BoundData& data, const PreparedModel& prepared, int64_t ignore_index);

struct LeftOut {
  std::string line;           // for people; "" if no sample is left out
  std::vector<int64_t> rows;  // the samples that are kept; empty: all
};
// With `on_bad_sample` skip, leaves out the samples that cannot be read or used; with `labels`, their labels are
// checked too. Otherwise the line names the samples that have more labels than `sequences` allow, which add nothing to
// the loss.
absl::StatusOr<LeftOut> LeaveOutBadSamples(const TrainConfig& config, const PreparedModel& prepared, bool labels,
                                           const std::vector<SequenceCheck>& sequences, BoundData* data);

// Reads the first `count` samples.
absl::StatusOr<GlobalBatch> ReadGlobalBatch(const TrainData& data, int64_t count);

// Returns config.num_workers; for auto, the initial number: a quarter of the CPUs, from 1 to 4.
int NumWorkers(const TrainConfig& config);
// Returns the most workers that auto may use: all CPUs, up to kMostAutoWorkers; 0 if num_workers is not auto.
int MaxWorkers(const TrainConfig& config);

// Returns true if `augment` asks for mixup or cutmix; false if it cannot be parsed.
bool MixesSamples(const TrainConfig& config);

// Marks the feeds of pictures and labels that `augment` mixes. Fails on labels that cannot be mixed.
absl::StatusOr<MixOptions> PlanMixing(const TrainConfig& config, const OpenedData& data, const LossChoice& loss,
                                      TrainData* train);

// Numbers integer labels that are not class indices 0 to n - 1, such as grades 3 to 9, in ascending order. Runs with
// num_classes auto, before surgery makes an output for each class.
absl::Status NumberCountedLabels(const TrainConfig& config, const LossSpec& loss, BoundData* data);

// Numbers labels that are not all indices of the model's classes, in ascending order, if there are as many different
// labels as classes. Valid indices stay unchanged even if some classes do not occur; so do regression targets.
absl::Status NumberModelLabels(const TrainConfig& config, PreparedModels& models, const LossSpec& loss,
                               BoundData* data);

struct ScaledTargets {
  OutputLayer layer;
  TargetUnit unit;
};

// Fits the targets of `train` and standardizes them in `train` and, if it has samples, in `eval`. Fails with a reason
// if the unit cannot be folded into the last layer.
absl::StatusOr<ScaledTargets> ScaleTargets(const OnnxModel& model, const PreparedModel& prepared, TrainData* train,
                                           TrainData* eval);

}  // namespace onnxtrain
