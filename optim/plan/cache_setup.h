// Decoded samples that stay in memory, as `cache` says.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/load/cache_budget.h"
#include "optim/config/config.h"

namespace onnxtrain {

// Parses config.cache; null: "none".
absl::StatusOr<std::shared_ptr<CacheBudget>> MakeCacheBudget(const TrainConfig& config);

// Makes the data set keep what its inputs are fed with. Fails where all of it is in memory already.
absl::Status KeepInMemory(const std::string& path, const std::shared_ptr<CacheBudget>& budget, BoundData* bound);

}  // namespace onnxtrain
