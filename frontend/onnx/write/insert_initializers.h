// Writes large initializers into a model's message from where they are in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/onnx/write/lazy_tensor.h"

namespace onnxtrain {

// A part of a serialized message: the bytes of `head`, and `data` after them.
struct MessagePiece {
  std::string head;
  LazyTensor data;
};

uint64_t CountBytes(const std::vector<MessagePiece>& pieces);

// Returns the serialized model `message` with raw_data[i] for initializer i of its graph, whose raw_data must be empty,
// but present, where raw_data[i] is not empty.
std::vector<MessagePiece> InsertInitializers(std::string_view message, const std::vector<LazyTensor>& raw_data);

}  // namespace onnxtrain
