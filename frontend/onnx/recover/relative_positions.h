// Recognizes biases that were looked up in a table by the offset between two positions of a window.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

// A bias for each head and pair of positions. The positions are those of a window, row by row, perhaps behind a class
// token, whose pairs with itself, with the others and of the others with it have three rows (Bao et al., 2022, "BEiT").
struct RelativeBias {
  size_t heads = 0;  // the axis
  int64_t height = 0, width = 0;
  bool class_token = false;
  std::vector<int64_t> rows;  // of the table, by pair in row-major order, numbered as they first occur
};

// Returns the reading of a tensor in which pairs of one offset have equal bytes. It has an axis of heads, two axes of
// positions, and others of one element. If all of its elements are equal, nothing proves the reading: then the axis of
// heads must come first, and the window must be a square of 2×2 positions at least.
std::optional<RelativeBias> FindRelativeBias(const HostTensor& tensor);

}  // namespace onnxtrain
