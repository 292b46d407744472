// Chooses the element type of matrix products, and the micro-batch that fits with it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "optim/config/config.h"
#include "optim/plan/step_plan.h"
#include "optim/step/session.h"

namespace onnxtrain {

struct PrecisionChoice {
  std::string name = "no";  // no, tf32, bf16 or fp16; never auto
  std::string why;          // for people; may be empty
  std::string warning;      // for people; may be empty
};

// Sets config.mixed_precision and loss_scale in *options. If config.micro_batch_size is auto, also sets the micro-batch
// in *options and *batch (for `batch.global` and at most `samples`). "auto" times the forward and backward pass of this
// model on this backend in both types, within options->recompute's budget, and chooses bf16 if it is at least 10 %
// faster, or the only type that fits. Fails if not even one sample fits.
absl::StatusOr<PrecisionChoice> ChoosePrecisionAndBatch(const TrainConfig& config,
                                                        const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                                        int64_t samples, BatchPlan* batch, SessionOptions* options);

}  // namespace onnxtrain
