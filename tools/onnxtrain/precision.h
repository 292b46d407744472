// --mixed-precision and --loss-scale: what products compute in, and how many samples at once then fit.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "optim/session.h"
#include "tools/onnxtrain/train_plan.h"

namespace onnxtrain::cli {

struct PrecisionChoice {
  std::string name = "no";  // no, bf16 or fp16: "auto" is decided
  std::string why;          // for the start page; "" where there is nothing to say
};

// Sets what the flags ask for, and the micro-batch where --micro-batch-size is auto (for `batch.global` and at most `samples`): into
// *options and *batch. "auto" times forward and backward pass of this model on this backend in both types, within
// options->recompute's budget, and takes bf16 where it is faster by a tenth. Fails on a scale that is no number or has nothing to
// scale, and where not even one sample fits.
absl::StatusOr<PrecisionChoice> SetPrecisionAndBatch(const std::shared_ptr<const OnnxModel>& model, Backend& backend, int64_t samples,
                                                     BatchPlan* batch, SessionOptions* options);

}  // namespace onnxtrain::cli
