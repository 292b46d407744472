// Writes or reduces updates into elements along an axis.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/cpu/kernels/typed.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/loop.h"

namespace onnxtrain::cpu {
namespace {

struct Write {
  template <typename T>
  static T F(T, T u) {
    return u;
  }
};
struct Add {
  template <typename T>
  static T F(T x, T u) {
    return static_cast<T>(x + u);
  }
};
struct Mul {
  template <typename T>
  static T F(T x, T u) {
    return static_cast<T>(x * u);
  }
};
// A NaN stays one.
struct Max {
  template <typename T>
  static T F(T x, T u) {
    return x != x || x > u ? x : u;
  }
};
struct Min {
  template <typename T>
  static T F(T x, T u) {
    return x != x || x < u ? x : u;
  }
};

// In the order of the updates: the last one wins.
template <typename Op, typename T>
Kernel ScatterKernel(const KernelContext& c) {
  const int64_t axis = c.attrs().Int("axis"), n = c.in().shape[axis];
  Shape places = Strides(c.in().shape);
  const int64_t step = places[axis];
  places[axis] = 0;
  const Shape strides[] = {Strides(c.in(1).shape), places};
  const Loop loop = MakeLoop(c.in(1).shape, strides);
  const size_t bytes = c.in().bytes();
  return {.run = [=](const Args& args) {
    const auto* index = args.in<int64_t>(1);
    const T* updates = args.in<T>(2);
    T* y = args.out<T>();
    std::memcpy(y, args.in<T>(), bytes);
    ForRows(loop, 0, loop.size(), [&](const OperandOffsets& at, int64_t count) {
      const int64_t inner = loop.InnerStride(1);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t place = index[at[0] + i], safe = std::clamp<int64_t>(place < 0 ? place + n : place, 0, n - 1);
        T& to = y[at[1] + i * inner + safe * step];
        to = Op::F(to, updates[at[0] + i]);
      }
    });
  }};
}

template <typename Op>
absl::StatusOr<Kernel> Prepare(const KernelContext& c) {
  return ForNumber(c.in().dtype, [&]<typename T>(T) -> absl::StatusOr<Kernel> { return ScatterKernel<Op, T>(c); });
}

absl::StatusOr<Kernel> PrepareScatter(const KernelContext& c) {
  const std::string reduction = c.attrs().String("reduction");
  if (reduction == "add") return Prepare<Add>(c);
  if (reduction == "mul") return Prepare<Mul>(c);
  if (reduction == "max") return Prepare<Max>(c);
  if (reduction == "min") return Prepare<Min>(c);
  return Prepare<Write>(c);
}

}  // namespace

std::span<const KernelRow> ScatterKernels() {
  static constexpr KernelRow kRows[] = {{"ScatterElements", PrepareScatter, kReals | kInts | kBools}};
  return kRows;
}

}  // namespace onnxtrain::cpu
