// Mixup and cutmix: which feeds of a run are mixed.
#pragma once

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "optim/config/config.h"
#include "optim/loop/trainer.h"
#include "optim/plan/open_data.h"
#include "optim/step/loss.h"
#include "optim/step/prepared_models.h"

namespace onnxtrain {

// Whether `augment` asks for mixup or cutmix. False where it cannot be parsed.
bool MixesSamples(const TrainConfig& config);

// Marks the feeds of pictures and labels that are mixed, as `augment` has it. Fails on labels that cannot be mixed.
absl::StatusOr<MixOptions> PlanMixing(const TrainConfig& config, const OpenedData& data, const LossChoice& loss,
                                      TrainData* train);

// Whole numbers that are labels but no indices of classes, as the grades 3 to 9 or the classes 1 to 4: they are names.
// Numbered in ascending order, they become indices.

// With num_classes auto, before surgery, which makes an output for each: numbers labels that are not 0 to n - 1.
absl::Status NumberCountedLabels(const TrainConfig& config, const LossSpec& loss, BoundData* data);

// Numbers labels that do not all fit the model's classes, where there are as many of them as classes. Labels that fit
// stay as they are, also where some do not occur; so do numbers to regress.
absl::Status NumberModelLabels(const TrainConfig& config, PreparedModels& models, const LossSpec& loss,
                               BoundData* data);

}  // namespace onnxtrain
