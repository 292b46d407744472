// Batch axes of outputs, from their declared shapes.
#pragma once

#include "frontend/onnx/import.h"
#include "optim/plan/input_plan.h"

namespace onnxtrain {

// Returns axis 1 for the outputs [steps,batch,classes]: those of rank 3 whose second dimension has the name of the
// first one of an input.
BatchAxes FindTimeFirstOutputs(const OnnxModel& model);

}  // namespace onnxtrain
