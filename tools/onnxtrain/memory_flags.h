// The flags about memory: batches, budget, recomputation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "optim/session.h"
#include "optim/trainer.h"
#include "tools/onnxtrain/train_plan.h"

namespace onnxtrain::cli {

// --gradient-checkpointing, --memory-budget.
absl::StatusOr<RecomputeSpec> MemoryFlags();

// --micro-batch-size: absent where it is not given or auto.
absl::StatusOr<std::optional<int64_t>> MicroBatchFlag();
bool AutoMicroBatch();
// --batch-size, --micro-batch-size, --gradient-accumulation-steps; `otherwise` is the global batch where none is given. With
// --micro-batch-size auto the micro-batch is the whole batch for now.
absl::StatusOr<BatchPlan> BatchFlags(int64_t otherwise);

// Of so many samples as tensors.
int64_t BatchBytes(const TrainData& data, int64_t samples);

// The largest micro-batch of at most `most` samples whose plan fits --memory-budget, or what the device has free, with a margin,
// in windows of `window` samples (0: one micro-batch). 0 where not even one sample fits.
absl::StatusOr<int64_t> LargestMicroBatch(const std::shared_ptr<const OnnxModel>& model, Backend& backend, const SessionOptions& options,
                                          int64_t most, int64_t window);

// --micro-batch-size auto: the largest micro-batch of at most `batch.global` and `samples` whose plan fits. The
// global batch stays.
absl::StatusOr<BatchPlan> FitMicroBatch(const std::shared_ptr<const OnnxModel>& model, Backend& backend, const SessionOptions& options,
                                        const BatchPlan& batch, int64_t samples);

}  // namespace onnxtrain::cli
