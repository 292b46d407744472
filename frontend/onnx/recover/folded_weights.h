// Recognizes weights that an exporter has computed from parameters, which the file no longer holds.
#pragma once

#include <string>
#include <vector>

#include "frontend/onnx/import.h"

namespace onnxtrain {

// Returns how many nodes of the model hold a BatchNorm that was folded into the convolution or product before it.
int CountFoldedNorms(const OnnxModel& model);

// Returns weights, in the order of their readers, which PyTorch's older exporter has computed from parameters of one
// layer: by weight normalization, spectral normalization or another function of them. It gives layers of other weights
// their own names.
std::vector<std::string> FindFoldedWeights(const OnnxModel& model);

// Returns numbers, in the order of the file, which PyTorch's older exporter has computed and which are not trained,
// although a parameter may be behind them: a gate, a step. Those of attention, √d and 1/√d, are left out.
std::vector<std::string> FindFoldedNumbers(const OnnxModel& model);

}  // namespace onnxtrain
