// From a configuration to a model and to the options of its import, loss and trained weights.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"
#include "optim/config/unused_fields.h"
#include "optim/plan/batch_axes.h"
#include "optim/step/loss.h"
#include "optim/step/trainable.h"

namespace onnxtrain {

// config.model, which must be set.
absl::StatusOr<std::shared_ptr<const OnnxModel>> LoadModel(const TrainConfig& config);
// The same for a model that is going to run: fails unless all of its operators, as far as config.logits needs them, are
// known.
absl::StatusOr<std::shared_ptr<const OnnxModel>> LoadRunnableModel(const TrainConfig& config);

// Fails as LoadRunnableModel does.
absl::Status CheckRunnable(const TrainConfig& config, const OnnxModel& model);

// config.dim by name. Each must name a free dimension of an input.
absl::StatusOr<std::map<std::string, int64_t>> ParseDims(const TrainConfig& config, const OnnxModel& model);

// Reads the files of onnx:FILE. Where the configuration specifies neither loss nor logits, they are those of `before`.
absl::StatusOr<LossSpec> MakeLossSpec(const TrainConfig& config, const OnnxModel& model,
                                      const std::optional<Preprocess>& before);

// Of MakeLossSpec, what says which outputs are wanted (LossOutputs).
LossSpec MakeOutputSpec(const TrainConfig& config, const OnnxModel& model);

TrainableSpec MakeTrainableSpec(const TrainConfig& config);

// The entries of config.input that are constants and no columns, by input: NUMBER for an input that may have no batch
// axis, @FILE.npy for any.
std::map<std::string, std::string> FindConstantTexts(const TrainConfig& config, const OnnxModel& model);

// With sizes that the model accepts for free dimensions where there is no data; the shapes of data replace them.
absl::StatusOr<ImportOptions> MakeImportOptions(const TrainConfig& config, const OnnxModel& model);

// With the axes, shapes and constants of the data: plans no inputs.
absl::StatusOr<ImportOptions> MakeImportOptions(const TrainConfig& config, const OnnxModel& model,
                                                const BoundData& data);
// Returns `import` with those of the data.
ImportOptions ImportWithData(ImportOptions import, const BoundData& data);

// The batch that the model was exported for where that is above 1 and the same for all inputs, else 1. Without `axes`,
// the likeliest ones: MakeImportOptions and data know better.
int64_t ExportedBatch(const OnnxModel& model);
int64_t ExportedBatch(const OnnxModel& model, const BatchAxes& axes);
// config.batch_size; where it is not set, ExportedBatch if above 1, else 32.
int64_t GlobalBatchSize(const TrainConfig& config, const OnnxModel& model);
int64_t GlobalBatchSize(const TrainConfig& config, const OnnxModel& model, const BatchAxes& axes);

// Which fields the loss reads.
RunFacts MakeLossFacts(const LossChoice& loss);
// Facts of loss and model, for a final configuration.
RunFacts MakeRunFacts(const OnnxModel& model, const LossChoice& loss);

}  // namespace onnxtrain
