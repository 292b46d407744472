// Tables of functions over spans: what an elementwise operator does to consecutive elements.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "frontend/graph/graph.h"

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

// y[i] = c[i] ? a[i] : b[i] over bool and floats; y may be an input.
using SelectSpan = void (*)(const void* c, const void* a, const void* b, void* y, int64_t n);

// Sums of two terms and roots, for chains (condense.h); y may be an input.
using BlendSpan = void (*)(const float* a, float s, const float* b, const float* c, float t, float* y, int64_t n);
using RootSpan = void (*)(const float* x, float s, float t, float* y, int64_t n);

// An operator with variants has an entry for each: "Gelu/tanh".
struct ElementwiseTables {
  std::span<const UnaryEntry> unary;
  std::span<const BinaryEntry> binary;
  SelectSpan select;
  BlendSpan sum, product, quotient;  // s·a + t·b, s·a + t·(b·c), s·a + t·(b/c)
  RootSpan root, root_over;          // √x·s + t, √x/s + t
};

const ElementwiseTables& Elementwises();
// Null where there is none.
const UnaryEntry* FindUnary(std::string_view entry);
const BinaryEntry* FindBinary(std::string_view entry);

// The entry that computes a node over float32 (or bool, where the operator says so), and its numbers.
struct EntryName {
  std::string name;
  std::array<float, 2> params{};
};
EntryName EntryOf(const Graph& graph, const Node& node);

// The numbers that a node's function takes besides x: alpha, bounds …
std::array<double, 2> NumbersOf(const Node& node);

// How many additions an element of this entry is worth, to judge how many threads it takes.
int64_t CostOf(std::string_view entry);

}  // namespace onnxtrain::cpu
