// Looks at a file's bytes before protobuf does.
//
// A few kilobytes on the wire can become gigabytes of message objects, and nested messages recurse. Guard walks the wire
// format with a table of ONNX's message fields, without recursion and without allocating, and refuses what would not fit
// into three times the file's size plus 200 MiB, or nests deeper than kMaxSubgraphs.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"

namespace onnxtrain {

inline constexpr int kMaxSubgraphs = 32;   // graphs within graphs
inline constexpr int kMaxMessages = 150;   // messages within messages

absl::Status GuardModelBytes(std::span<const std::byte> bytes);
absl::Status GuardTensorBytes(std::span<const std::byte> bytes);
absl::Status GuardSequenceBytes(std::span<const std::byte> bytes);
absl::Status GuardOptionalBytes(std::span<const std::byte> bytes);

}  // namespace onnxtrain
