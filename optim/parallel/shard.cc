#include "optim/parallel/shard.h"

#include <algorithm>

namespace onnxtrain {
namespace {

struct Level {
  ShardLevel level;
  std::string_view name;
};

constexpr Level kLevels[] = {
    {ShardLevel::kNone, "none"},
    {ShardLevel::kOptimizer, "optimizer"},
    {ShardLevel::kGradients, "gradients"},
    {ShardLevel::kFull, "full"},
};

int64_t CountBytes(const ShardOptions& options, ShardLevel level) {
  const SessionMemory& m = options.whole;
  const int64_t divided = (level >= ShardLevel::kOptimizer ? m.moments : 0) +
                          (level >= ShardLevel::kGradients ? m.gradients : 0) +
                          (level >= ShardLevel::kFull ? m.parameters : 0);
  return m.total() - divided / options.ranks * (options.ranks - 1);
}

bool IsPossible(const ShardOptions& options, ShardLevel level) {
  if (level == ShardLevel::kNone) return true;
  return options.may_divide && (level < ShardLevel::kGradients || options.may_divide_gradients);
}

}  // namespace

ShardLevel FindShardLevel(std::string_view name) {
  const auto* const found = std::ranges::find(kLevels, name, &Level::name);
  return found != std::end(kLevels) ? found->level : ShardLevel::kNone;
}

std::string_view ShardName(ShardLevel level) { return std::ranges::find(kLevels, level, &Level::level)->name; }

bool MayDivideGradients(const TrainConfig& config, std::string_view device) {
  return device == "cpu" && !config.deterministic && config.histogram_every.value == 0;
}

ShardLevel ChooseShardLevel(const ShardOptions& options) {
  ShardLevel chosen = ShardLevel::kNone;
  for (const Level& row : kLevels) {
    if (!IsPossible(options, row.level)) break;
    chosen = row.level;
    if (2 * CountBytes(options, chosen) <= options.available) break;
  }
  return chosen;
}

}  // namespace onnxtrain
