// The configuration of a trainer that another program drives.
#pragma once

#include "absl/status/statusor.h"
#include "optim/config/config.h"

namespace onnxtrain::capi {

// Parses JSON; null: all defaults. Fails, with the reason, on fields that mean something to the command line alone.
absl::StatusOr<TrainConfig> ReadConfig(const char* json);

}  // namespace onnxtrain::capi
