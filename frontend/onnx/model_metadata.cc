#include "frontend/onnx/model_metadata.h"

#include "frontend/onnx/metadata.h"
#include "frontend/onnx/parsed.h"

namespace onnxtrain {

const std::string& FindModelMetadata(const OnnxModel& model, const std::string& key) {
  return FindMetadata(model.parsed().metadata, key);
}

}  // namespace onnxtrain
