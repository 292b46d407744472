#include "optim/plan/cache_setup.h"

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/load/ram_cache.h"
#include "frontend/data/sources/file.h"
#include "optim/record/telemetry/format.h"

namespace onnxtrain {

absl::StatusOr<std::shared_ptr<CacheBudget>> MakeCacheBudget(const TrainConfig& config) {
  if (config.cache == "none") return nullptr;
  if (config.cache == "ram") return std::make_shared<CacheBudget>(DefaultMemoryLimit());
  const auto bytes =
      config.cache.starts_with("ram:") ? ParseSize(config.cache.substr(4)) : absl::StatusOr<int64_t>(Invalid(""));
  if (!bytes.ok() || *bytes < 1)
    return Invalid("`cache`: expected none, ram or ram:SIZE like ram:2GiB, got '", config.cache, "'");
  return std::make_shared<CacheBudget>(*bytes);
}

absl::Status KeepInMemory(const std::string& path, const std::shared_ptr<CacheBudget>& budget, BoundData* bound) {
  std::vector<int> columns;
  for (const FeedSpec& feed : bound->feeds) columns.insert(columns.end(), feed.columns.begin(), feed.columns.end());
  auto cached = CacheInRam(bound->dataset, columns, budget);
  if (cached == nullptr) return Invalid("`cache` ram: has no effect: the samples of ", path, " are in memory already");
  bound->dataset = std::move(cached);
  bound->notes.push_back(StrCat("decoded samples stay in memory, up to ",
                                FormatBytes(static_cast<double>(budget->bytes())), " (`cache`)"));
  return absl::OkStatus();
}

}  // namespace onnxtrain
