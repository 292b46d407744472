#include "optim/plan/token_budget.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "optim/record/telemetry/format.h"

namespace onnxtrain {
namespace {

// The feed whose samples are counted in tokens; null: there is none.
const FeedSpec* FindTokens(const BoundData& data) {
  const auto variable = std::ranges::find_if(data.feeds, &FeedSpec::variable);
  if (variable != data.feeds.end()) return &*variable;
  const auto ids = std::ranges::find(data.feeds, data.token_input, &FeedSpec::feed);
  return ids != data.feeds.end() && ids->sample.rank() > 0 ? &*ids : nullptr;
}

absl::Status TooFewTokens(const TrainConfig& config, int64_t accumulation, int64_t longest) {
  return Invalid("`max_tokens_per_batch` ", config.max_tokens_per_batch, ": ",
                 accumulation > 1 ? StrCat("each of ", accumulation, " micro-batches") : std::string("a batch"),
                 " needs at least the ", longest, " tokens of the longest sample, padding included (`max_length` ",
                 "truncates)");
}

}  // namespace

absl::StatusOr<TokenBudget> PlanTokens(const TrainConfig& config, const BoundData& data, BatchPlan* batch) {
  if (config.max_tokens_per_batch == 0) return TokenBudget();
  const FeedSpec* tokens = FindTokens(data);
  if (tokens == nullptr) return Invalid("`max_tokens_per_batch`: the data has no tokens (`text`)");
  const int64_t longest = tokens->sample.shape[0];
  TokenBudget budget{.accumulation = std::max<int64_t>(1, config.gradient_accumulation_steps)};
  budget.tokens = config.max_tokens_per_batch / budget.accumulation;
  budget.max_samples = config.batch_size / budget.accumulation;
  if (budget.tokens < longest) return TooFewTokens(config, budget.accumulation, longest);
  *batch = {budget.Samples(longest), budget.MicroSamples(longest), budget.accumulation};
  return tokens->variable ? budget : TokenBudget();
}

std::string DescribeTokens(const TokenBudget& budget, const std::vector<FeedSpec>& specs) {
  const auto variable = std::ranges::find_if(specs, &FeedSpec::variable);
  const int64_t longest = variable->sample.shape[0], shortest = RoundUpLength(1, longest);
  const auto samples = [&](int64_t length) {
    return StrCat(FormatWithCommas(budget.Samples(length)), " samples of ", length);
  };
  return StrCat("at most ", FormatWithCommas(budget.tokens * budget.accumulation), " tokens: from ", samples(longest),
                " to ", samples(shortest), ", ", budget.accumulation, " micro-batch",
                budget.accumulation > 1 ? "es" : "");
}

}  // namespace onnxtrain
