// The axes of a reduction as rows and columns.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "frontend/graph/type.h"

namespace onnxtrain::aten {

struct Fold {
  int64_t columns = 0;     // of the tensor as a matrix
  bool by_column = false;  // folds leading axes: reduces each column; else each row
};

// Nullopt where the axes (empty: all) are neither the leading nor the trailing ones, or none is longer than 1.
std::optional<Fold> FindFold(const Shape& shape, std::vector<int64_t> axes);

}  // namespace onnxtrain::aten
