// Counts the targets of a batch within a graph. LossDenominators (global_batch.h) counts them on the host.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "frontend/ops/builder.h"
#include "optim/step/loss.h"

namespace onnxtrain {

// Appends InverseDenominator(term, W) of a batch whose label feeds the graph has: a scalar of this type.
absl::StatusOr<Val> AppendInverseDenominator(Builder& b, const LossTerm& term, const LossSpec& spec, int64_t batch,
                                             DType dtype);

}  // namespace onnxtrain
