// Takes the large initializers out of a model's bytes before protobuf copies them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace onnxtrain {

// Where bytes stand in a file.
struct ByteRange {
  size_t offset = 0, size = 0;
};

struct LiftedModel {
  std::string rest;                 // a message like the model's, without the raw_data that was lifted
  std::vector<ByteRange> raw_data;  // of each initializer of the model's graph, in order; empty where it is still in `rest`
};

// Lifts raw_data of at least `from` bytes. The bytes must have passed GuardModelBytes.
LiftedModel LiftInitializers(std::span<const std::byte> bytes, size_t from);

}  // namespace onnxtrain
