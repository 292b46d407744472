// Finds the products in bodies of If, Loop and Scan, which have no low-rank updates.
#pragma once

#include <vector>

#include "frontend/onnx/edit/low_rank.h"

namespace onnxtrain {

// Returns the products in bodies of control flow, whose weights are initializers of the body or of a graph around it.
std::vector<LeftOutProduct> ListBodyProducts(const OnnxModel& model);

}  // namespace onnxtrain
