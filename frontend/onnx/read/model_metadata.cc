#include "frontend/onnx/read/model_metadata.h"

#include "frontend/onnx/read/metadata.h"
#include "frontend/onnx/read/parsed.h"

namespace onnxtrain {

const std::string& FindModelMetadata(const OnnxModel& model, const std::string& key) {
  return FindMetadata(model.parsed().metadata, key);
}

}  // namespace onnxtrain
