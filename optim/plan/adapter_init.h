// The tensors of new adapters: shapes and initial values.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "frontend/onnx/edit/low_rank.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/recover/weight_origin.h"
#include "optim/config/config.h"

namespace onnxtrain {

// The shapes of A, B and the magnitudes of DoRA beside a weight, as PEFT has them.
struct AdapterShapes {
  Shape a;          // [rank, inputs], of a convolution [rank, inputs, kernel…], of experts [experts·rank, inputs]
  Shape b;          // [outputs, rank], of a convolution [outputs, rank, 1…], of experts [outputs, rank·experts]
  Shape magnitude;  // [outputs], of a convolution [1, outputs, 1…]
};
AdapterShapes GetAdapterShapes(const LowRankTarget& target, int64_t rank);

// The inputs of one output: of a convolution channels times the kernel's elements.
int64_t CountInputs(const LowRankTarget& target);

// Returns an update beside the target without tensors.
LowRankUpdate MakeUpdate(const LowRankTarget& target);

// Returns the initial magnitudes of DoRA: the lengths of the weights of each output of the update.
HostTensor MakeMagnitude(const LazyTensor& weight, const LowRankUpdate& update, const Type& type);

// Returns one with initial values: A as lora_init says, drawn from the run's seed and the name of A; B zero. With pissa
// A = √(S/scale)·Vᵀ and B = U·√(S/scale) of the weight's largest singular values S, found by subspace iteration
// (Halko, Martinsson and Tropp, arXiv:0909.4061), which needs a float weight. Magnitudes are the lengths of the
// outputs.
absl::StatusOr<LowRankUpdate> MakeInitialUpdate(const TrainConfig& config, const LowRankTarget& target, int64_t rank,
                                                const OnnxModel& model);

}  // namespace onnxtrain
