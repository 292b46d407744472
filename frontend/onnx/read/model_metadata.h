// What a model file says about itself in metadata_props.
#pragma once

#include <string>

#include "frontend/onnx/import.h"

namespace onnxtrain {

// Returns the value of a key of the model's metadata; "" if there is none.
const std::string& FindModelMetadata(const OnnxModel& model, const std::string& key);

}  // namespace onnxtrain
