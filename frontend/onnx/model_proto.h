// Bytes → ModelProto, behind the guard. For the sources of this folder alone.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/statusor.h"

namespace onnx {
class ModelProto;
}

namespace onnxtrain {

absl::StatusOr<std::shared_ptr<onnx::ModelProto>> ParseModelProto(std::span<const std::byte> bytes);

}  // namespace onnxtrain
