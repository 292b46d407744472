// The proof that a model which was exported for a fixed batch follows another one.
#pragma once

#include "absl/status/status.h"
#include "backends/backend.h"
#include "optim/prepare.h"
#include "optim/programs.h"

namespace onnxtrain {

// Runs the model, in inference mode and on random input, once with a batch of one sample more than it was exported for
// (`frozen_batch` of them) and then as it was exported, twice: on all samples but the last and on all but the first. Every
// output must hold the same rows; where one does not, the error names the node at which the runs part. `weights` is where
// the model's weights live.
absl::Status ProveBatch(const OnnxModel& model, const PrepareOptions& options, int64_t frozen_batch, Backend& backend,
                        const Bindings& weights);

}  // namespace onnxtrain
