// Mixed precision: the element type of matrix products, and how many samples at once then fit.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "optim/config/config.h"
#include "optim/plan/step_plan.h"
#include "optim/step/session.h"

namespace onnxtrain {

struct PrecisionChoice {
  std::string name = "no";  // no, tf32, bf16 or fp16: "auto" is decided
  std::string why;          // for people; "" where there is nothing to say
  std::string warning;      // likewise
};

// Sets config.mixed_precision and loss_scale in *options, and the micro-batch in *options and *batch where
// config.micro_batch_size is auto (for `batch.global` and at most `samples`). "auto" times forward and backward pass of
// this model on this backend in both types, within options->recompute's budget, and takes bf16 where it is faster by a
// tenth, or the type that fits where one does not. Fails where not even one sample fits.
absl::StatusOr<PrecisionChoice> ChoosePrecisionAndBatch(const TrainConfig& config,
                                                        const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                                        int64_t samples, BatchPlan* batch, SessionOptions* options);

}  // namespace onnxtrain
