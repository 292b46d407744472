// Reads the text form of a graph (print.h).
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

struct ParseOptions {
  // Bytes that `splat` tensors may take together; everything else is bounded by the length of the text.
  size_t max_splat_bytes = size_t{1} << 30;
};

// The graph such that Parse(Print(g)) == g. Total: any text gives a graph that passes VerifyStructure, or an error that
// begins with "line N: ". Operators, attributes and types are not checked against the rows: see ops/check.h.
absl::StatusOr<Graph> Parse(std::string_view text, const ParseOptions& options = {});

}  // namespace onnxtrain
