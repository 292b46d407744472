// Adds low-rank updates to the message of a model, as nodes after products. Only sources of frontend/onnx include it.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "frontend/onnx/recover/weight_origin.h"

namespace onnx {
class ModelProto;
}  // namespace onnx

namespace onnxtrain {

// Replaces the result y of each product of the updates by y + (x·A)·B or, if `scaled`, by y + scale·(x·A)·B. A [inputs,
// rank] and B [rank, outputs] are values of the graph with the names in LowRankUpdate. Updates of parts of a weight are
// concatenated; outputs without an update get a zero one of rank 1. Fails, naming the product, if the file lacks it.
absl::Status InsertLowRankNodes(const std::vector<LowRankUpdates>& updates, bool scaled, onnx::ModelProto* model);

// Inserts the updates among `records` whose weights are quantized, and initializers with the initial values of A and B.
absl::Status AddLowRankNodes(const WeightRecords& records, onnx::ModelProto* model);

}  // namespace onnxtrain
