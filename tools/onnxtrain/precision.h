// --mixed-precision and --loss-scale: what products compute in.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "optim/prepare.h"
#include "optim/session.h"

namespace onnxtrain::cli {

struct PrecisionChoice {
  std::string name = "no";  // no, bf16 or fp16: "auto" is decided
  std::string why;          // for the start page; "" where there is nothing to say
};

// Sets what the flags ask for. "auto" times forward and backward pass of this model on this backend in both types and takes
// bf16 where it is faster by a tenth. Fails on a scale that is no number or has nothing to scale.
absl::StatusOr<PrecisionChoice> SetPrecision(const PreparedModel& model, Backend& backend, SessionOptions* options);

}  // namespace onnxtrain::cli
