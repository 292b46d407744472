// Bytes → ModelProto. For the sources of this folder only.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "frontend/onnx/edit/model_edits.h"
#include "frontend/onnx/read/extract_initializers.h"

namespace onnx {
class ModelProto;
}

namespace onnxtrain {

// Parses the bytes after GuardModelBytes has accepted them.
absl::StatusOr<std::shared_ptr<onnx::ModelProto>> ParseModelProto(std::span<const std::byte> bytes);

// A message without the raw_data of large initializers, which stays where it is.
struct PartialModel {
  std::shared_ptr<onnx::ModelProto> proto;
  ExtractedData extracted;
};

// As ParseModelProto, without copying large initializers.
absl::StatusOr<PartialModel> ParsePartialModel(std::span<const std::byte> bytes);

// Applies edits. Their tensors take the element type of the tensors that they replace.
absl::Status ApplyEdits(const ModelEdits& edits, onnx::ModelProto* model);

}  // namespace onnxtrain
