// Makes a model, and the options of its import, loss and trained weights, from a configuration.
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
#include "optim/plan/input_plan.h"
#include "optim/step/loss.h"
#include "optim/step/trainable.h"

namespace onnxtrain {

// Loads config.model, which must be set.
absl::StatusOr<std::shared_ptr<const OnnxModel>> LoadModel(const TrainConfig& config);
// Loads config.model for a run: fails unless all operators that config.logits depends on are supported.
absl::StatusOr<std::shared_ptr<const OnnxModel>> LoadRunnableModel(const TrainConfig& config);

// Fails as LoadRunnableModel does.
absl::Status CheckRunnable(const TrainConfig& config, const OnnxModel& model);

// Returns the sizes of config.dim by name. Each must name a free dimension of an input.
absl::StatusOr<std::map<std::string, int64_t>> ParseDims(const TrainConfig& config, const OnnxModel& model);

// Makes the loss, and reads the files of onnx:FILE. If the configuration specifies neither loss nor logits, uses those
// of `before`.
absl::StatusOr<LossSpec> MakeLossSpec(const TrainConfig& config, const OnnxModel& model,
                                      const std::optional<Preprocess>& before);

// Returns the part of MakeLossSpec that selects the wanted outputs (LossOutputs).
LossSpec MakeOutputSpec(const TrainConfig& config, const OnnxModel& model);

TrainableSpec MakeTrainableSpec(const TrainConfig& config);

// Returns the entries of config.input that are constants, not columns, by input: NUMBER for an input that may have no
// batch axis, @FILE.npy for any.
std::map<std::string, std::string> FindConstantTexts(const TrainConfig& config, const OnnxModel& model);

// Makes import options without data, with sizes that the model accepts for free dimensions. The shapes of data replace
// these sizes.
absl::StatusOr<ImportOptions> MakeImportOptions(const TrainConfig& config, const OnnxModel& model);

// Makes import options with the axes, shapes and constants of the data; plans no inputs.
absl::StatusOr<ImportOptions> MakeImportOptions(const TrainConfig& config, const OnnxModel& model,
                                                const BoundData& data);
// Returns `import` with the axes, shapes and constants of the data.
ImportOptions ImportWithData(ImportOptions import, const BoundData& data);

// Returns the batch size that the model was exported for if it is above 1 and the same for all inputs, else 1. Without
// `axes`, uses the most likely ones, which are less reliable than those of MakeImportOptions or of data.
int64_t ExportedBatch(const OnnxModel& model);
int64_t ExportedBatch(const OnnxModel& model, const BatchAxes& axes);
// Returns config.batch_size; if it is not set, ExportedBatch if above 1, else 32.
int64_t GlobalBatchSize(const TrainConfig& config, const OnnxModel& model);
int64_t GlobalBatchSize(const TrainConfig& config, const OnnxModel& model, const BatchAxes& axes);

// Returns which fields the loss reads.
RunFacts MakeLossFacts(const LossChoice& loss);
// Returns the facts of loss and model, for a final configuration.
RunFacts MakeRunFacts(const OnnxModel& model, const LossChoice& loss);

}  // namespace onnxtrain
