#include "optim/auto/micro_batch.h"

#include <algorithm>
#include <limits>

#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "optim/auto/batch_size.h"
#include "optim/telemetry/format.h"

namespace onnxtrain {
namespace {

// The share of memory that stays free for what no plan knows: rounding of allocators, stacks of threads.
constexpr double kMargin = 0.05;

int64_t SaturatedProduct(size_t bytes, int64_t count) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t product;
  return __builtin_mul_overflow(bytes, count, &product) ? kMost : product;
}

}  // namespace

int64_t BatchBytes(const TrainData& data, int64_t samples) {
  size_t bytes = 0;
  for (const FeedSpec& feed : data.specs) bytes += feed.sample.bytes();
  return SaturatedProduct(bytes, samples);
}

absl::Status CheckBatchFits(const Dataset& dataset, int64_t samples) {
  size_t bytes = 0;
  for (const Column& column : dataset.columns()) bytes += column.sample.bytes();
  const int64_t needed = SaturatedProduct(bytes, std::min(samples, dataset.size()));
  const size_t available = AvailableMemory();
  if (static_cast<size_t>(needed) <= available) return absl::OkStatus();
  return Invalid("a batch of ", samples, samples == 1 ? " sample of " : " samples of ", bytes, " bytes needs ",
                 needed >> 20, " MiB, but only ", available >> 20, " MiB of memory are free (`batch_size`)");
}

namespace {

int64_t UsableMemory(const Backend& backend, const SessionOptions& options) {
  if (options.recompute.memory_budget > 0) return options.recompute.memory_budget;
  return static_cast<int64_t>(std::min<size_t>(backend.FreeMemory(), std::numeric_limits<int64_t>::max()));
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

absl::StatusOr<int64_t> LargestMicroBatch(const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                          const SessionOptions& options, int64_t most, int64_t global_batch) {
  if (options.fixed_batch > 0) return options.fixed_batch;
  SessionOptions planned = options;
  planned.recompute.memory_budget = 0;  // a size that fits without automatic recomputation
  const auto peak = [&](int64_t size) -> absl::StatusOr<int64_t> {
    ASSIGN_OR_RETURN(const SessionMemory memory,
                     PlannedMemory(models, backend, planned, size, global_batch == 0 ? size : global_batch));
    return memory.total();
  };
  return LargestFitting(peak, static_cast<int64_t>(static_cast<double>(UsableMemory(backend, options)) * (1 - kMargin)),
                        most);
}

absl::StatusOr<BatchPlan> FitMicroBatch(const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                        const SessionOptions& options, const BatchPlan& batch, int64_t samples) {
  ASSIGN_OR_RETURN(const int64_t micro,
                   LargestMicroBatch(models, backend, options, std::min(batch.global, samples), batch.global));
  if (micro > 0) {
    const int64_t count = CeilDiv(batch.global, micro);
    const int64_t even = options.fixed_batch > 0 ? micro : CeilDiv(batch.global, count);
    return BatchPlan{batch.global, even, count};
  }
  // One sample may still fit with recomputation.
  const auto one = PlannedMemory(models, backend, options, 1, batch.global);
  if (!one.ok()) return Annotate(one.status(), "`micro_batch_size` auto: not even one sample fits: ");
  if (one->total() <= UsableMemory(backend, options)) return BatchPlan{batch.global, 1, batch.global};
  return Invalid("`micro_batch_size` auto: one sample needs ", FormatBytes(static_cast<double>(one->total())),
                 ", and there are ", FormatBytes(static_cast<double>(UsableMemory(backend, options))));
}

}  // namespace onnxtrain
