// Finds the logits of outputs that are probabilities, so that no loss applies a second softmax.
#pragma once

#include "frontend/onnx/import.h"

namespace onnxtrain {

// Adds a graph output with the logits of every output of probabilities that is not directly produced by Softmax or
// Sigmoid, and registers it in model->logits. Follows casts, reshapes, transpositions and clips; (1 − p, p) of a
// sigmoid is the softmax of (0, logit). Distributions without logits (an average of softmaxes, scores divided by their
// sum) get their logarithm, whose softmax is the distribution.
void ExposeLogits(ImportedModel* model);

}  // namespace onnxtrain
