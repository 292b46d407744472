// The logits behind outputs that are probabilities, so that no loss applies a second softmax.
#pragma once

#include "frontend/onnx/import.h"

namespace onnxtrain {

// Adds, for every output that holds probabilities but does not come right from a Softmax or Sigmoid, a graph output
// with its logits, and registers it in model->logits. Follows casts, reshapes, transpositions and clips; (1 − p, p) of
// a sigmoid is the softmax of (0, logit). Distributions without logits (an average of softmaxes, scores divided by
// their sum) get their logarithm: its softmax is the distribution.
void ExposeLogits(ImportedModel* model);

}  // namespace onnxtrain
