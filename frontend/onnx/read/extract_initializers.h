// Extracts large initializers from a model's bytes, so that protobuf does not copy them.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace onnxtrain {

// A range of bytes in a file.
struct ByteRange {
  size_t offset = 0, size = 0;
};

// Initializers whose raw_data is not in the message: its place in the file, by name.
using ExtractedData = std::map<std::string, ByteRange>;

struct ExtractedModel {
  std::string rest;                 // the message without the extracted raw_data
  std::vector<ByteRange> raw_data;  // of each initializer of the graph, in order; empty if it is still in `rest`
};

// Extracts raw_data of at least `min_bytes` bytes. The bytes must have passed GuardModelBytes.
ExtractedModel ExtractInitializers(std::span<const std::byte> bytes, size_t min_bytes);

}  // namespace onnxtrain
