// Adds low-rank updates to the message of a model, as nodes after products whose weights are quantized.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "frontend/onnx/recover/weight_origin.h"

namespace onnx {
class ModelProto;
}  // namespace onnx

namespace onnxtrain {

// Replaces the result y of each product with a quantized weight of `updates` by y + scale·(x·A)·B. The initializers A
// [inputs, rank] and B [rank, outputs] have the names of LowRankUpdate and its initial values. Fails if a product does
// not exist.
absl::Status AddLowRankNodes(const std::vector<LowRankUpdate>& updates, onnx::ModelProto* model);

}  // namespace onnxtrain
