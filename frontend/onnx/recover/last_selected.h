// Finds selections by a mask whose result has a shape that is known after all.
#pragma once

#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

// Classifiers of BART and T5 take the state at the last end token of each text:
//   x[mask].view(batch, -1, width)[:, -1], exported as NonZero, Transpose, GatherND, Reshape and Gather.
// Replaces these nodes by one of kLastSelected. In the original, all rows must have as many selected positions.
void JoinLastSelections(ParsedGraph* graph);

}  // namespace onnxtrain
