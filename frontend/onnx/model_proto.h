// Bytes → ModelProto. For the sources of this folder only.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "frontend/onnx/model_edits.h"

namespace onnx {
class ModelProto;
}

namespace onnxtrain {

// Parses the bytes after GuardModelBytes has accepted them.
absl::StatusOr<std::shared_ptr<onnx::ModelProto>> ParseModelProto(std::span<const std::byte> bytes);

// Applies edits. Their tensors take the element type of the tensors that they replace.
absl::Status ApplyEdits(const ModelEdits& edits, onnx::ModelProto* model);

}  // namespace onnxtrain
