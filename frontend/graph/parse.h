// Parses the text form of a graph (print.h).
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

struct ParseOptions {
  // Limits the total bytes of `splat` tensors; the length of the text bounds everything else.
  size_t max_splat_bytes = size_t{1} << 30;
};

// Returns the graph that the text describes: Parse(Print(g)) == g. Any text yields a graph that passes VerifyStructure
// or an error that begins with "line N: ". Does not check operators, attributes and types against the rows; ops/check.h
// does.
absl::StatusOr<Graph> Parse(std::string_view text, const ParseOptions& options = {});

}  // namespace onnxtrain
