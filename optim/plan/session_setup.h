// Makes the options of a session, and its backend, from a configuration and bound data.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/data/bind/binding.h"
#include "frontend/onnx/interop/training_info.h"
#include "optim/config/config.h"
#include "optim/plan/step_plan.h"
#include "optim/step/prepared_models.h"
#include "optim/step/session.h"

namespace onnxtrain {

RecomputeSpec MakeRecomputeSpec(const TrainConfig& config);

// Makes all options except optimizer and schedule.
absl::StatusOr<SessionOptions> MakeSessionOptions(const TrainConfig& config, const OnnxModel& model,
                                                  const BoundData& data, const LossSpec& loss, int64_t micro_batch);

// Prepares a model, with a loss that fits its outputs, for micro-batches of `batch`. If the model accepts only the
// batch size of its file, or its constants fix one, uses that size and sets *fixed_batch. Outputs whose batch axis has
// no size get one with a batch of 1 (options->import.batch_axes).
absl::StatusOr<PreparedModel> PrepareAtAnyBatch(PreparedModels& models, int64_t batch, bool training,
                                                PrepareOptions* options, int64_t* fixed_batch);

// Prepares the forward graph, the weights with values and the loss of a session with these options. An error about the
// loss names the label column. If the model accepts only the batch size of its file, sets options->micro_batch and
// fixed_batch to it; if BoundData::sample_index_input is set, to all samples. Freezes BatchNormalization if the model
// is bound to a batch of 1 (options->may_freeze_batch_norm).
absl::StatusOr<PreparedModel> PrepareFor(PreparedModels& models, const BoundData& data, SessionOptions* options,
                                         bool training);

// Explains fixed_batch to users; "" if it is 0.
std::string DescribeFixedBatch(int64_t fixed_batch);

// Plans micro-batches of options.fixed_batch if it is set. Fails if the configuration contradicts it.
absl::Status FixMicroBatch(const TrainConfig& config, const SessionOptions& options, BatchPlan* batch);

// Drops the last samples if they do not fill a batch of fixed_batch samples. Fails if none is left.
absl::Status KeepWholeBatches(int64_t fixed_batch, std::shared_ptr<const Dataset>* samples);

// Makes config.backend on config.device. auto: torch if there is a usable CUDA device, else cpu. The caller must have
// set the environment variables that libraries read when they are loaded (backends/registry.h).
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const TrainConfig& config);

}  // namespace onnxtrain
