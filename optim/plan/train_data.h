// Mixup and cutmix: which feeds of a run are mixed.
#pragma once

#include "absl/status/statusor.h"
#include "optim/loop/trainer.h"
#include "optim/plan/open_data.h"

namespace onnxtrain {

// Whether `augment` asks for mixup or cutmix. False where it cannot be parsed.
bool MixesSamples(const TrainConfig& config);

// Marks the feeds of pictures and labels that are mixed, as `augment` has it. Fails on labels that cannot be mixed.
absl::StatusOr<MixOptions> PlanMixing(const TrainConfig& config, const OpenedData& data, const LossChoice& loss,
                                      TrainData* train);

}  // namespace onnxtrain
