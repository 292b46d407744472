// Adds low-rank updates to the message of a model, as nodes after products whose weights are quantized.
#pragma once

#include "absl/status/status.h"
#include "frontend/onnx/recover/weight_origin.h"

namespace onnx {
class ModelProto;
}  // namespace onnx

namespace onnxtrain {

// Replaces the result y of each product with a quantized weight by y + scale·(x·A)·B, for the updates among `records`.
// The initializers A [inputs, rank] and B [rank, outputs] have the names and the initial values of LowRankUpdate. Fails
// if a product does not exist.
absl::Status AddLowRankNodes(const WeightRecords& records, onnx::ModelProto* model);

}  // namespace onnxtrain
