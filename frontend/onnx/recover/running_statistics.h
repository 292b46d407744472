// Finds the statistics of batch normalizations that exporters of JAX and TensorFlow write as arithmetic.
#pragma once

#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

// Marks as buffers what nothing else has told a kind of: the variance, a vector behind √(variance + ε), and the mean in
// (x − mean)·s and x·s + (shift − mean·s), where s is made of that root. Training would move both, the variance below
// zero.
void FindRunningStatistics(ParsedGraph* graph);

}  // namespace onnxtrain
