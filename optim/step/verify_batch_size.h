// Verifies, by running it, that a model exported for a fixed batch size computes the same with another batch size.
#pragma once

#include "absl/status/status.h"
#include "backends/backend.h"
#include "optim/step/prepared_models.h"
#include "optim/step/program/programs.h"

namespace onnxtrain {

// Runs the model in inference mode on frozen_batch + 1 random samples, then with the exported batch size on all samples
// except the last, and on all except the first. Rows of every output must agree to 1e-3 relative to the largest number;
// otherwise the error names the first node whose results differ. `weights` binds the model's weights.
absl::Status VerifyBatchSize(PreparedModels& models, const PrepareOptions& options, int64_t frozen_batch,
                             Backend& backend, const Bindings& weights);

}  // namespace onnxtrain
