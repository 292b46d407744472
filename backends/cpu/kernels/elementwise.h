// Tables of elementwise functions over rows of consecutive elements, and kernels from such functions, with
// broadcasting.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// Functions of rows. y may be one of the inputs. `p` are the operator's numbers (alpha, …).
using UnarySpan = void (*)(const void* x, void* y, int64_t n, const float* p);
using DoubleSpan = void (*)(const void* x, void* y, int64_t n, const double* p);
using BinarySpan = void (*)(const void* a, const void* b, void* y, int64_t n);

struct BinarySpans {
  BinarySpan both = nullptr;          // a[i], b[i]
  BinarySpan scalar_right = nullptr;  // a[i], b[0]
  BinarySpan scalar_left = nullptr;   // a[0], b[i]
};

// An elementwise function. One with variants has an entry for each: "Gelu/tanh". `cost`: how many additions an element
// is worth, to judge how many threads it takes.
struct UnaryEntry {
  const char* op;
  int64_t cost;
  UnarySpan span;                 // over float32
  DoubleSpan f64_span = nullptr;  // over float64; null where that is decomposed
};

struct BinaryEntry : BinarySpans {
  const char* op;
  int64_t cost;
  BinarySpans f64 = {};
};

// y[i] = c[i] ? a[i] : b[i] over bool and floats; y may be an input.
using SelectSpan = void (*)(const void* c, const void* a, const void* b, void* y, int64_t n);

// Sums of two terms and roots, for chains (peephole.h); y may be an input.
using BlendSpan = void (*)(const float* a, float s, const float* b, const float* c, float t, float* y, int64_t n);
using RootSpan = void (*)(const float* x, float s, float t, float* y, int64_t n);

struct ElementwiseTables {
  std::span<const UnaryEntry> unary;
  std::span<const BinaryEntry> binary;
  SelectSpan select;
  BlendSpan sum, product, quotient;  // s·a + t·b, s·a + t·(b·c), s·a + t·(b/c)
  RootSpan root, root_over;          // √x·s + t, √x/s + t
};

const ElementwiseTables& GetElementwiseTables();
// Return null if there is none.
const UnaryEntry* FindUnary(std::string_view entry);
const BinaryEntry* FindBinary(std::string_view entry);

// The table entry of a node, and its numeric attributes.
struct EntryName {
  std::string name;
  std::array<float, 2> params{};
};
EntryName GetEntry(const Graph& graph, const Node& node);

// The numeric attributes of a node, in the order of its row: what its function takes besides x.
std::array<double, 2> GetParams(const Node& node);

// Returns the cost of an element of this entry, in additions.
int64_t GetElementCost(std::string_view entry);

// y = f(x), both dense and of the same shape. `cost` is the relative cost of an element.
Kernel UnaryKernel(const KernelContext& c, UnarySpan span, std::array<float, 2> params = {}, int64_t cost = 1);
// y = f(a, b) with broadcasting.
Kernel BinaryKernel(const KernelContext& c, const BinarySpans& spans, int64_t cost = 1);

}  // namespace onnxtrain::cpu
