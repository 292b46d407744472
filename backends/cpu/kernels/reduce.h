// Defines how reductions fold elements into accumulators.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onnxtrain::cpu {

// One reduction over elements of one type.
struct Reducer {
  size_t accumulator;  // bytes
  void (*start)(void* accs, int64_t n);
  void (*row)(const void* x, int64_t n, void* acc);       // n elements into one accumulator
  void (*columns)(const void* x, int64_t n, void* accs);  // into one each
  void (*merge)(void* into, const void* from, int64_t n);
  void (*finish)(const void* accs, int64_t n, double divisor, void* y);
};

// Sums of float32, kept in double precision.
const Reducer& GetFloatSumReducer();

}  // namespace onnxtrain::cpu
