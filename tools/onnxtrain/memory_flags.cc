#include "tools/onnxtrain/memory_flags.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>

#include "frontend/base/status.h"
#include "optim/batch_size.h"
#include "optim/telemetry/format.h"
#include "tools/onnxtrain/flags.h"
#include "tools/onnxtrain/units.h"

namespace onnxtrain::cli {
namespace {

// Of what there is, for what no plan knows: allocators' rounding, threads' stacks.
constexpr double kMargin = 0.05;

template <typename T>
std::optional<T> IfGiven(const char* flag, T value) {
  return Given(flag) ? std::optional(value) : std::nullopt;
}

}  // namespace

absl::StatusOr<RecomputeSpec> MemoryFlags() {
  static const std::map<std::string, RecomputeMode> kModes = {{"none", RecomputeMode::kNone}, {"auto", RecomputeMode::kAuto},
                                                             {"sqrt", RecomputeMode::kSqrt}, {"all", RecomputeMode::kAll},
                                                             {"budget", RecomputeMode::kBudget}};
  RecomputeSpec spec{.mode = kModes.at(FLAGS_gradient_checkpointing)};
  if (Given("memory_budget")) {
    const auto bytes = ParseSize(FLAGS_memory_budget);
    if (!bytes.ok()) return Annotate(bytes.status(), "--memory-budget: ");
    spec.memory_budget = *bytes;
  }
  if (spec.mode == RecomputeMode::kBudget && spec.memory_budget == 0) {
    return Invalid("--gradient-checkpointing budget: wants a --memory-budget");
  }
  return spec;
}

bool AutoMicroBatch() { return FLAGS_micro_batch_size == "auto"; }

absl::StatusOr<std::optional<int64_t>> MicroBatchFlag() {
  if (!Given("micro_batch_size") || AutoMicroBatch()) return std::optional<int64_t>();
  constexpr int64_t kMost = 1 << 24;
  const auto number = ParseInt(FLAGS_micro_batch_size);
  if (number.ok() && *number >= 1 && *number <= kMost) return std::optional(*number);
  return Invalid("--micro-batch-size: expected auto or a whole number of at least 1 and at most ", kMost, ", got '", FLAGS_micro_batch_size, "'");
}

absl::StatusOr<BatchPlan> BatchFlags(int64_t otherwise) {
  if (AutoMicroBatch() && Given("gradient_accumulation_steps")) {
    return Invalid("--micro-batch-size auto: chooses the --gradient-accumulation-steps, which are given");
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> micro, MicroBatchFlag());
  return PlanBatch(IfGiven("batch_size", FLAGS_batch_size), micro,
                   IfGiven("gradient_accumulation_steps", FLAGS_gradient_accumulation_steps), otherwise);
}

int64_t BatchBytes(const TrainData& data, int64_t samples) {
  int64_t bytes = 0;
  for (const FeedSpec& feed : data.specs) bytes += static_cast<int64_t>(feed.sample.bytes());
  return bytes * samples;
}

namespace {

int64_t MemoryToUse(const Backend& backend, const SessionOptions& options) {
  if (options.recompute.memory_budget > 0) return options.recompute.memory_budget;
  return static_cast<int64_t>(std::min<size_t>(backend.FreeMemory(), std::numeric_limits<int64_t>::max()));
}

}  // namespace

absl::StatusOr<int64_t> LargestMicroBatch(const std::shared_ptr<const OnnxModel>& model, Backend& backend, const SessionOptions& options,
                                          int64_t most, int64_t window) {
  SessionOptions planned = options;
  planned.recompute.memory_budget = 0;  // a size that fits without recomputation, unless one is asked for
  const auto peak = [&](int64_t size) -> absl::StatusOr<int64_t> {
    ASSIGN_OR_RETURN(const SessionMemory memory, PlannedMemory(model, backend, planned, size, window == 0 ? size : window));
    return memory.total();
  };
  return LargestFitting(peak, static_cast<int64_t>(static_cast<double>(MemoryToUse(backend, options)) * (1 - kMargin)), most);
}

absl::StatusOr<BatchPlan> FitMicroBatch(const std::shared_ptr<const OnnxModel>& model, Backend& backend, const SessionOptions& options,
                                        const BatchPlan& batch, int64_t samples) {
  ASSIGN_OR_RETURN(const int64_t micro, LargestMicroBatch(model, backend, options, std::min(batch.global, samples), batch.global));
  if (micro > 0) return BatchPlan{batch.global, micro, (batch.global + micro - 1) / micro};
  // One sample that fits only where something is computed again.
  const auto one = PlannedMemory(model, backend, options, 1, batch.global);
  if (!one.ok()) return Annotate(one.status(), "--micro-batch-size auto: not even one sample fits: ");
  if (one->total() <= MemoryToUse(backend, options)) return BatchPlan{batch.global, 1, batch.global};
  return Invalid("--micro-batch-size auto: one sample needs ", ShownBytes(static_cast<double>(one->total())), ", and there are ",
                 ShownBytes(static_cast<double>(MemoryToUse(backend, options))));
}

}  // namespace onnxtrain::cli
