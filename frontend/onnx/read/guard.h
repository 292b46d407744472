// Checks the bytes of a file before protobuf parses them.
//
// A few kilobytes on the wire can become gigabytes of message objects, and the parser recurses into nested messages.
// The guard walks the wire format with a table of ONNX's message fields, without recursion and allocation. It rejects
// bytes whose messages would take more than three times the file's size plus 200 MiB, or nest deeper than the limits
// below.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"

namespace onnxtrain {

inline constexpr int kMaxSubgraphs = 32;  // graphs within graphs
inline constexpr int kMaxMessages = 150;  // messages within messages

absl::Status GuardModelBytes(std::span<const std::byte> bytes);
absl::Status GuardTensorBytes(std::span<const std::byte> bytes);
absl::Status GuardSequenceBytes(std::span<const std::byte> bytes);
absl::Status GuardOptionalBytes(std::span<const std::byte> bytes);

}  // namespace onnxtrain
