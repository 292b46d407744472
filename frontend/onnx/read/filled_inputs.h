// Inputs whose missing values the model fills in.
#pragma once

#include <set>
#include <string>

#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

// Returns the inputs whose values reach, moved or cast at most, an Imputer that replaces NaN, or IsNaN.
std::set<std::string> FindFilledInputs(const ParsedGraph& graph);

}  // namespace onnxtrain
