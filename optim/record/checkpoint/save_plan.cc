#include "optim/record/checkpoint/save_plan.h"

#include "frontend/base/strings.h"
#include "frontend/base/units.h"

namespace onnxtrain {
namespace {

// Buffers of the file writer and of the compressor.
constexpr int64_t kWriterBytes = int64_t{4} << 20, kCompressorBytes = int64_t{4} << 20;

// Bytes per second that are assumed for copies by all threads and for synced writes to a solid-state disk.
constexpr double kCopiedPerSecond = 4e9, kWrittenPerSecond = 5e8;

// Returns true if the run saves before its end. With `save_every` end, only signals request such saves.
bool SavesBetweenUpdates(const TrainConfig& config) {
  return config.save_every.value > 0 || config.keep_best > 0 || config.export_weights == "best";
}

}  // namespace

SavePlan PlanSave(const TrainConfig& config, const SaveFacts& facts, int64_t room) {
  if (facts.state_bytes == 0) return {};
  const bool compressed = config.checkpoint_compression == "zstd";
  SavePlan plan{.method = SaveMethod::kInPlace,
                .bytes = kWriterBytes + (compressed ? kCompressorBytes : 0),
                .pause_seconds = static_cast<double>(facts.state_bytes) / kWrittenPerSecond,
                .between_updates = SavesBetweenUpdates(config)};
  const bool copies = !facts.on_host || (plan.between_updates && facts.state_bytes + plan.bytes <= room);
  if (!copies) return plan;
  plan.method = SaveMethod::kCopy;
  plan.bytes += facts.state_bytes;
  plan.pause_seconds = static_cast<double>(facts.state_bytes) / kCopiedPerSecond;
  return plan;
}

std::string DescribeSave(const SavePlan& plan) {
  if (plan.method == SaveMethod::kNone) return "";
  const std::string bytes = FormatBytes(static_cast<double>(plan.bytes));
  const std::string pause = plan.between_updates ? StrCat("an update waits ", FormatDuration(plan.pause_seconds))
                                                 : std::string("at the end of the run");
  return plan.method == SaveMethod::kCopy ? StrCat("copies the state: ", bytes, " of memory, ", pause)
                                          : StrCat("writes the state where it is: ", bytes, " of memory, ", pause);
}

}  // namespace onnxtrain
