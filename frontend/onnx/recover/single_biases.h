// Finds recurrent layers of frameworks that have one bias where ONNX has two.
#pragma once

#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

// Sets the attribute kSingleBias (frontend/ops/import/recurrent.h). ONNX adds the bias of the inputs and that of the
// state. Frameworks with one, as Keras, store zeros for the other; training both would double the learning rate.
// PyTorch has both.
void MarkSingleBiases(OnnxModel::Parsed* model);

}  // namespace onnxtrain
