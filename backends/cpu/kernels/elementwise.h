// Tables of elementwise functions over rows of contiguous elements, and the kernels with broadcasting made of them.
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

// Functions of rows. y may be one of the inputs. `p` has the operator's numeric attributes (alpha, …).
using UnarySpan = void (*)(const void* x, void* y, int64_t n, const float* p);
using DoubleSpan = void (*)(const void* x, void* y, int64_t n, const double* p);
using BinarySpan = void (*)(const void* a, const void* b, void* y, int64_t n);

struct BinarySpans {
  BinarySpan both = nullptr;          // a[i], b[i]
  BinarySpan scalar_right = nullptr;  // a[i], b[0]
  BinarySpan scalar_left = nullptr;   // a[0], b[i]
};

// An elementwise function. A variant has its own entry: "Gelu/tanh". `cost` is the time of an element in additions,
// from which Parallel chooses the number of threads.
struct UnaryEntry {
  const char* op;
  int64_t cost;
  UnarySpan span;                 // over float32
  DoubleSpan f64_span = nullptr;  // over float64; null if the operator is decomposed for it
};

struct BinaryEntry : BinarySpans {
  const char* op;
  int64_t cost;
  BinarySpans f64 = {};
};

// y[i] = c[i] ? a[i] : b[i] over bool and floats; y may be an input.
using SelectSpan = void (*)(const void* c, const void* a, const void* b, void* y, int64_t n);

// Sums of two terms, and roots, of peephole steps (peephole.h); y may be an input.
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
// Return the entry of that name, or null.
const UnaryEntry* FindUnary(std::string_view entry);
const BinaryEntry* FindBinary(std::string_view entry);

// The table entry of a node, and its numeric attributes.
struct EntryName {
  std::string name;
  std::array<float, 2> params{};
};
EntryName GetEntry(const Graph& graph, const Node& node);

// Returns the numeric attributes of a node, in the order of its row.
std::array<double, 2> GetParams(const Node& node);

// Returns the cost of an element of this entry, in additions.
int64_t GetElementCost(std::string_view entry);

// Makes the kernel y = f(x) of dense tensors of the same shape. `cost` is the cost of an element, in additions. Spans
// begin and end at multiples of `row` elements.
Kernel UnaryKernel(const KernelContext& c, UnarySpan span, std::array<float, 2> params = {}, int64_t cost = 1,
                   int64_t row = 1);
// Makes the kernel y = f(a, b) with broadcasting.
Kernel BinaryKernel(const KernelContext& c, const BinarySpans& spans, int64_t cost = 1);

}  // namespace onnxtrain::cpu
