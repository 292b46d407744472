// Tables of functions over spans: what an elementwise operator does to consecutive elements.
#pragma once

#include <cstdint>
#include <span>

namespace onnxtrain::cpu {

// y may be one of the inputs. `p` are the operator's numbers (alpha, …).
using UnarySpan = void (*)(const void* x, void* y, int64_t n, const float* p);
using BinarySpan = void (*)(const void* a, const void* b, void* y, int64_t n);

struct UnaryEntry {
  const char* op;
  UnarySpan span;
};

struct BinaryEntry {
  const char* op;
  BinarySpan both;          // a[i], b[i]
  BinarySpan scalar_right;  // a[i], b[0]
  BinarySpan scalar_left;   // a[0], b[i]
};

// An operator with variants has an entry for each: "Gelu/tanh".
struct ElementwiseTables {
  std::span<const UnaryEntry> unary;
  std::span<const BinaryEntry> binary;
};

}  // namespace onnxtrain::cpu
