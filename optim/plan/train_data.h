// Plans mixup and cutmix, and turns labels that are numbers into class indices.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "optim/config/config.h"
#include "optim/loop/trainer.h"
#include "optim/plan/open_data.h"
#include "optim/step/loss.h"
#include "optim/step/prepared_models.h"

namespace onnxtrain {

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

}  // namespace onnxtrain
