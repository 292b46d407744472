// Recognizes BatchNorm that an exporter has folded into the convolution or product before it.
#pragma once

#include "frontend/onnx/import.h"

namespace onnxtrain {

// Returns how many nodes of the model hold a folded BatchNorm.
int CountFoldedNorms(const OnnxModel& model);

}  // namespace onnxtrain
