// Labels as the data has them, before a loss is chosen.
#pragma once

#include <cstdint>

#include "frontend/graph/type.h"

namespace onnxtrain {

// The loss decides which tensor it wants from them.
struct LabelInfo {
  bool present = false;
  Type sample;                           // element type and shape of one sample's label
  int64_t min_value = 0, max_value = 0;  // of integer labels
};

}  // namespace onnxtrain
