// From a configuration and bound data to the options of a session, and to its backend.
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

// Everything but optimizer and schedule.
absl::StatusOr<SessionOptions> MakeSessionOptions(const TrainConfig& config, const OnnxModel& model,
                                                  const BoundData& data, const LossSpec& loss, int64_t micro_batch);

// Prepares a model, with a loss that fits its outputs, for micro-batches of `batch`, or of another size where it
// follows no batch but the one of its file, or one that its constants fix; that becomes *fixed_batch. Outputs that have
// a batch axis with no size get one with a batch of 1 (options->import.batch_axes).
absl::StatusOr<PreparedModel> PrepareAtAnyBatch(PreparedModels& models, int64_t batch, bool training,
                                                PrepareOptions* options, int64_t* fixed_batch);

// Prepares what a session with these options starts from: forward graph, weights with values, loss. An error about the
// loss says which column the label is. Where the model follows no batch but the one that its file declares, that
// becomes options->micro_batch and fixed_batch, as all samples do where BoundData::places_input is set. Freezes
// BatchNormalization where the model is bound to a batch of 1 (options->may_freeze_batch_norm).
absl::StatusOr<PreparedModel> PrepareFor(PreparedModels& models, const BoundData& data, SessionOptions* options,
                                         bool training);

// What fixed_batch means for users; "" where it is 0.
std::string DescribeFixedBatch(int64_t fixed_batch);

// Plans micro-batches of options.fixed_batch where it is set. Fails where the configuration contradicts it.
absl::Status FixMicroBatch(const TrainConfig& config, const SessionOptions& options, BatchPlan* batch);

// Leaves samples at the end out that make no whole batch of fixed_batch samples. Fails if none is left.
absl::Status KeepWholeBatches(int64_t fixed_batch, std::shared_ptr<const Dataset>* samples);

// config.backend on config.device. auto: torch where there is a usable CUDA device, else cpu. The caller has set the
// environment that libraries read when they are loaded (backends/registry.h).
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const TrainConfig& config);

}  // namespace onnxtrain
