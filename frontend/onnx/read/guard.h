// Checks the bytes of a file before protobuf parses them.
//
// A few kilobytes on the wire can become gigabytes of message objects, and the parser recurses into nested messages.
// The guard walks the wire format with a table of ONNX's message fields, without recursion and allocation. It rejects
// bytes whose messages would take more than three times the file's size plus 200 MiB, or nest deeper than the limits
// below.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace onnxtrain {

inline constexpr int kMaxSubgraphs = 32;  // graphs within graphs
inline constexpr int kMaxMessages = 150;  // messages within messages

absl::Status GuardModelBytes(std::span<const std::byte> bytes);
absl::Status GuardTensorBytes(std::span<const std::byte> bytes);
absl::Status GuardSequenceBytes(std::span<const std::byte> bytes);
absl::Status GuardOptionalBytes(std::span<const std::byte> bytes);

struct ByteRange {
  size_t offset = 0, size = 0;
};

// File ranges of the raw_data of initializers that was extracted from the message, by name.
using ExtractedData = std::map<std::string, ByteRange>;

struct ExtractedModel {
  std::string rest;                 // the message without the extracted raw_data
  std::vector<ByteRange> raw_data;  // of each initializer of the graph, in order; empty if it is still in `rest`
};

// Extracts raw_data of at least `min_bytes` bytes, so that protobuf does not copy it. The bytes must have passed
// GuardModelBytes.
ExtractedModel ExtractInitializers(std::span<const std::byte> bytes, size_t min_bytes);

}  // namespace onnxtrain
