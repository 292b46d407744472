#include "tools/onnxtrain/precision.h"

#include "frontend/base/strings.h"
#include "tools/onnxtrain/flags.h"

namespace onnxtrain::cli {

PrecisionChoice PrecisionFlag(const Backend&) {
  if (FLAGS_mixed_precision == "no") return {};
  return {.compute = DType::kBFloat16, .name = "bf16", .why = "products in bf16, weights and gradients in float32"};
}

}  // namespace onnxtrain::cli
