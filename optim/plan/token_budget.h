// Batches by tokens (config.max_tokens_per_batch).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/load/token_batches.h"
#include "optim/config/config.h"
#include "optim/plan/step_plan.h"

namespace onnxtrain {

// Sets *batch to the samples of the longest length that fit the tokens, and returns how many of other lengths do. It is
// off without max_tokens_per_batch and where all samples have one length: *batch holds for all of them then. Fails
// where the data has no tokens, and where a micro-batch takes not one sample.
absl::StatusOr<TokenBudget> PlanTokens(const TrainConfig& config, const BoundData& data, BatchPlan* batch);

// "4096 tokens: 8 samples of 512 … 512 samples of 8".
std::string DescribeTokens(const TokenBudget& budget, const std::vector<FeedSpec>& specs);

}  // namespace onnxtrain
