// Candidates for an elementary function: y[i] = f(x[i]) for i in [0, n).
#pragma once

#include <cstdint>
#include <span>

namespace onnxtrain::cpu {

using RowFunction = void (*)(const float* x, float* y, int64_t n);

struct Candidates {
  const char* name;
  RowFunction ours;     // null where there is none
  RowFunction highway;  // hwy/contrib/math
  RowFunction library;  // a loop over the C library's function
};

}  // namespace onnxtrain::cpu
