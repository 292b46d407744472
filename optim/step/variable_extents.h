// Extents of inputs that differ between batches.
#pragma once

#include "optim/step/global_batch.h"
#include "optim/step/prepared_models.h"
#include "optim/step/session.h"

namespace onnxtrain {

// Those of the first variable input, as SessionOptions::import has them: the greatest. Zeros where there is none.
VariableExtents GreatestExtents(const SessionOptions& options);
// Those of a part of a batch; the greatest where it has no such input.
VariableExtents FindExtents(const SessionOptions& options, const GlobalBatch& part);
// The options of a model with these extents.
PrepareOptions PrepareAt(const SessionOptions& options, const VariableExtents& extents);

}  // namespace onnxtrain
