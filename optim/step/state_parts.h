// Parts of state tensors that ranks hold: runs of elements at equal distances.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

// Elements [begin + i · stride, begin + i · stride + length) of a flat tensor, for i = 0, 1, …
struct ElementRuns {
  int64_t begin = 0, length = 0, stride = 0;

  bool operator==(const ElementRuns&) const = default;
};

// All elements of a tensor, of which there is at least one.
inline ElementRuns AllElements(int64_t elements) { return {0, elements, elements}; }

// A part by name: "w1@128:64:64" for AllElements and 128 elements later.
struct StatePart {
  std::string tensor;
  ElementRuns runs;
};

std::string PartName(std::string_view tensor, const ElementRuns& runs);
absl::StatusOr<StatePart> ParsePartName(std::string_view name);

// Writes a part, in which the runs follow each other, into the whole tensor, whose bytes must be its own. Fails where
// the elements do not lie in it, in whole runs, one behind the other.
absl::Status PutRuns(const HostTensor& part, const ElementRuns& runs, HostTensor* whole);

}  // namespace onnxtrain
