// From a configuration and bound data to the options of a session, and to its backend.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/data/binding.h"
#include "optim/config.h"
#include "optim/prepare.h"
#include "optim/session.h"

namespace onnxtrain {

// Rule, decay, clipping and the rule's numbers; the learning rate is chosen later (learning_rates.h). With the rule's
// own defaults where the configuration has none.
OptimizerSpec MakeOptimizer(const TrainConfig& config);
// Without total_steps.
absl::StatusOr<ScheduleSpec> MakeSchedule(const TrainConfig& config);
RecomputeSpec MakeRecomputeSpec(const TrainConfig& config);

// Everything but optimizer and schedule.
absl::StatusOr<SessionOptions> MakeSessionOptions(const TrainConfig& config, const OnnxModel& model,
                                                  const BoundData& data, const LossSpec& loss, int64_t micro_batch);

// Prepares what a session with these options starts from: forward graph, weights with values, loss. An error about the
// loss says which column the label is.
absl::StatusOr<PreparedModel> PrepareFor(PreparedModels& models, const BoundData& data, const SessionOptions& options,
                                         bool training);

// config.backend on config.device. auto: torch where there is a usable CUDA device, else cpu. The caller has set the
// environment that libraries read when they are loaded (backends/registry.h).
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const TrainConfig& config);

}  // namespace onnxtrain
