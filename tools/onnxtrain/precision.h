// --mixed-precision: what products compute in.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "optim/session.h"

namespace onnxtrain::cli {

struct PrecisionChoice {
  DType compute = DType::kFloat32;
  std::string name = "no";  // as the flag has it: no, bf16, fp16
  std::string why;          // for the start page; "" where there is nothing to say
};

// What the flag asks for; "auto" is decided for this backend.
PrecisionChoice PrecisionFlag(const Backend& backend);

}  // namespace onnxtrain::cli
