// Evaluates operators and graphs on the host, in double or int64. Slow and simple.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

// Calls f(i, offsets) for each element i of `shape` in row-major order, with offsets[k] = starts[k] + Σ
// index·strides[k].
template <size_t N, typename F>
void Walk(const Shape& shape, const std::array<Shape, N>& strides, const std::array<int64_t, N>& starts, F&& f) {
  std::array<int64_t, N> at = starts;
  Shape index(shape.size(), 0);
  const int64_t count = NumElements(shape);
  for (int64_t i = 0; i < count; ++i) {
    f(i, at);
    for (size_t axis = shape.size(); axis-- > 0;) {
      for (size_t k = 0; k < N; ++k) at[k] += strides[k][axis];
      if (++index[axis] < shape[axis]) break;
      for (size_t k = 0; k < N; ++k) at[k] -= strides[k][axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

// Returns strides that read a dense tensor of shape `from` broadcast to `to`.
Shape BroadcastStrides(const Shape& from, const Shape& to);
// Copies element j of x to element i of *y, which has the same type.
void CopyElement(const HostTensor& x, int64_t j, HostTensor* y, int64_t i);
// Returns y with y[index] = x[start + Σ index·strides], which evaluates Expand, Transpose and Slice.
HostTensor GatherStrided(const HostTensor& x, const Type& type, const Shape& strides, int64_t start = 0);

// Returns f(x) for float inputs, with f: double → double.
template <typename F>
std::vector<HostTensor> MapFloats(const EvalContext& c, F f) {
  HostTensor y(c.output_types[0]);
  for (int64_t i = 0, n = y.size(); i < n; ++i) y.Set(i, f(c.inputs[0]->At(i)));
  return {std::move(y)};
}

template <auto F>
std::vector<HostTensor> EvalUnary(const EvalContext& c) {
  return MapFloats(c, F);
}

// Evaluates the function that Make(attrs) returns.
template <auto Make>
std::vector<HostTensor> EvalWithAttrs(const EvalContext& c) {
  return MapFloats(c, Make(c.attrs));
}

// Evaluates OnFloats for float inputs and OnInts, in int64, for integers and bool.
template <auto OnFloats, auto OnInts>
std::vector<HostTensor> EvalNumeric(const EvalContext& c) {
  const HostTensor& x = *c.inputs[0];
  if (IsFloat(x.dtype())) return MapFloats(c, OnFloats);
  HostTensor y(c.output_types[0]);
  for (int64_t i = 0, n = y.size(); i < n; ++i) y.SetInt(i, OnInts(x.IntAt(i)));
  return {std::move(y)};
}

template <typename F, typename G>
std::vector<HostTensor> MapPairs(const EvalContext& c, F on_floats, G on_ints) {
  HostTensor y(c.output_types[0]);
  const HostTensor &a = *c.inputs[0], &b = *c.inputs[1];
  const bool floats = IsFloat(a.dtype());
  Walk<2>(y.shape(), {BroadcastStrides(a.shape(), y.shape()), BroadcastStrides(b.shape(), y.shape())}, {0, 0},
          [&](int64_t i, const std::array<int64_t, 2>& at) {
            if (floats) {
              y.Set(i, on_floats(a.At(at[0]), b.At(at[1])));
            } else {
              y.SetInt(i, on_ints(a.IntAt(at[0]), b.IntAt(at[1])));
            }
          });
  return {std::move(y)};
}

// Evaluates a function of two inputs with broadcasting. Limitation: unsigned 64-bit numbers ≥ 2^63 compare and divide
// as negative numbers.
template <auto OnFloats, auto OnInts>
std::vector<HostTensor> EvalBinary(const EvalContext& c) {
  return MapPairs(c, OnFloats, OnInts);
}

// Arithmetic that wraps around on overflow, with x/0 = 0.
int64_t WrapAdd(int64_t a, int64_t b);
int64_t WrapSub(int64_t a, int64_t b);
int64_t WrapMul(int64_t a, int64_t b);
int64_t SafeDiv(int64_t a, int64_t b);
int64_t SafeMod(int64_t a, int64_t b);   // has the sign of a; a mod 0 = 0
int64_t FloorMod(int64_t a, int64_t b);  // has the sign of b
int64_t WrapPow(int64_t a, int64_t b);   // 0 for a negative exponent unless a = ±1

// Evaluates a graph by `evaluate` of its rows, or by the decompositions of rows without it, and returns the graph
// outputs in order. For proofs and tests: keeps every value in memory until the end. Fails if an input is missing or
// has another type, and on operators that have neither (random operators).
absl::StatusOr<std::vector<HostTensor>> Interpret(const Graph& graph, const std::map<std::string, HostTensor>& inputs);

}  // namespace onnxtrain
