// Bytes → ModelProto, behind the guard. For the sources of this folder alone.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "frontend/onnx/edits.h"

namespace onnx {
class ModelProto;
}

namespace onnxtrain {

// Behind GuardModelBytes.
absl::StatusOr<std::shared_ptr<onnx::ModelProto>> ParseModelProto(std::span<const std::byte> bytes);

// Tensors of the edits take the element type of what they replace.
absl::Status ApplyEdits(const ModelEdits& edits, onnx::ModelProto* model);

}  // namespace onnxtrain
