// Dropout of consecutive elements, for all kernels with dropout: the mask is a function of key, stream and element
// index.
#pragma once

#include <cstdint>

#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

class DropoutSpan {
 public:
  // Reads the attributes ratio and stream. `elements`: of the whole tensor.
  DropoutSpan(const Attrs& attrs, int64_t elements);

  // y = the dropout of the elements [first, first + n) of a tensor, which lie at x; y may be x. `key`: four words.
  void Run(const uint32_t* key, int64_t first, const float* x, int64_t n, float* y) const;

 private:
  int64_t stream_;
  uint64_t elements_;
  float ratio_, keep_;
};

}  // namespace onnxtrain::cpu
