// What commands start from: model and data together, the description of both, feeds for the trainer, workers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/bad_samples.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"
#include "optim/loop/trainer.h"
#include "optim/plan/open_data.h"
#include "optim/step/loss.h"
#include "optim/step/prepared_models.h"

namespace onnxtrain {

// Does it hold evaluation samples of its own (MNIST's t10k-* in a folder, pictures in val, test …)?
bool HasEvalFiles(const std::string& path);

// The preprocess.json of config.model, if there is one; without classes and loss where the configuration changes the
// classes.
absl::StatusOr<std::optional<Preprocess>> ReadPreprocess(const TrainConfig& config);

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

// The values that the labels of a feed may have; nullopt: any. Of class indices, also `ignore_index`.
std::optional<ValueRange> FindLabelRange(const LossChoice& loss, const LossFeed& feed, int64_t ignore_index);

// Feeds and labels for the trainer, with the checks of their values. Checks every class label against the loss.
absl::StatusOr<TrainData> MakeTrainData(const BoundData& data, const PreparedModel& prepared, int64_t ignore_index);

struct LeftOut {
  std::string line;           // for people; "" where none is left out
  std::vector<int64_t> rows;  // the samples that stay; empty: all
};
// With on_bad_sample skip: leaves out the samples that cannot be read or used (with `labels` also as labels). Else the
// line says which ones have more labels than `sequences` allow: these add nothing to the loss.
absl::StatusOr<LeftOut> LeaveOutBadSamples(const TrainConfig& config, const PreparedModel& prepared, bool labels,
                                           const std::vector<SequenceCheck>& sequences, BoundData* data);

// The first `count` samples.
absl::StatusOr<GlobalBatch> ReadGlobalBatch(const TrainData& data, int64_t count);

// config.num_workers; auto: a quarter of the CPUs, 1 to 4, to begin with.
int NumWorkers(const TrainConfig& config);
// As many as auto may come to: all CPUs, up to kMostAutoWorkers. Else 0.
int MaxWorkers(const TrainConfig& config);

}  // namespace onnxtrain
