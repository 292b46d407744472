// Host evaluation of rows, in double or int64: slow and simple.
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

// Calls f(i, offsets) for the elements of `shape` in row-major order: i counts up, offsets[k] = starts[k] + Σ
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
// y[i] = x[start + Σ index·strides]: Expand, Transpose, Slice.
HostTensor GatherStrided(const HostTensor& x, const Type& type, const Shape& strides, int64_t start = 0);

// y = F(x) with F: double → double, for float inputs.
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

// The same for a function of the attributes: Make(attrs) returns it.
template <auto Make>
std::vector<HostTensor> EvalWithAttrs(const EvalContext& c) {
  return MapFloats(c, Make(c.attrs));
}

// The same for any type: integers and bool are computed in int64.
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

// y = F(a, b) with broadcasting. Unsigned 64-bit numbers above 2^63 compare and divide as
// negative numbers.
template <auto OnFloats, auto OnInts>
std::vector<HostTensor> EvalBinary(const EvalContext& c) {
  return MapPairs(c, OnFloats, OnInts);
}

// Two's complement arithmetic without undefined overflow; x/0 = 0.
int64_t WrapAdd(int64_t a, int64_t b);
int64_t WrapSub(int64_t a, int64_t b);
int64_t WrapMul(int64_t a, int64_t b);
int64_t SafeDiv(int64_t a, int64_t b);
int64_t SafeMod(int64_t a, int64_t b);   // the sign of a; a mod 0 = 0
int64_t FloorMod(int64_t a, int64_t b);  // the sign of b
int64_t WrapPow(int64_t a, int64_t b);   // 0 for negative exponents, but of ±1

// Evaluates a graph on the host by the rows' `evaluate`, or by the decomposition of rows without it. For proofs and
// tests: slow, and keeps every value in memory until the end.

// Returns the graph outputs, in order. Fails if an input is missing or has another type, and on operators that can be
// neither evaluated nor decomposed (random operators).
absl::StatusOr<std::vector<HostTensor>> Interpret(const Graph& graph, const std::map<std::string, HostTensor>& inputs);

}  // namespace onnxtrain
