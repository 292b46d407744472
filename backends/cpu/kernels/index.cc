// Prepares Gather, scatter and arg-reduction operators.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/cpu/kernels/typed.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"

namespace onnxtrain::cpu {
namespace {

// Returns the position of an index. Negative indices count from the end; indices out of range are clamped, so that no
// other memory is read.
int64_t Clamped(int64_t index, int64_t n) { return std::clamp<int64_t>(index < 0 ? index + n : index, 0, n - 1); }

template <typename I>
absl::StatusOr<Kernel> GatherKernel(const KernelContext& c) {
  const AxisView x = ViewAround(c.in().shape, c.attrs().Int("axis"));
  const int64_t count = c.in(1).elements();
  const size_t bytes = x.inner * DTypeSize(c.in().dtype);
  return Kernel{.run = [=](const Args& args) {
    const auto* from = args.in<char>();
    auto* to = args.out<char>();
    const I* index = args.in<I>(1);
    Parallel(x.outer * count, x.inner, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / count * x.n + Clamped(static_cast<int64_t>(index[i % count]), x.n);
        std::memcpy(to + i * bytes, from + row * bytes, bytes);
      }
    });
  }};
}

// Adds to zeros or to the third operand. Each thread adds to its own columns, in the order of the indices.
template <typename I, typename T>
absl::StatusOr<Kernel> GatherGradKernel(const KernelContext& c) {
  const AxisView x = ViewAround(c.out().shape, c.attrs().Int("axis"));
  const int64_t count = c.in(1).elements();
  const bool adds = c.has(2);
  return Kernel{.run = [=](const Args& args) {
    const T* old = adds ? args.in<T>(2) : nullptr;
    const T* dy = args.in<T>();
    T* dx = args.out<T>();
    const I* index = args.in<I>(1);
    Parallel(x.outer * x.inner, (old == dx ? 0 : x.n) + count, [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t block = begin / x.inner, column = begin % x.inner;
        const int64_t width = std::min(x.inner - column, end - begin);
        const int64_t first = block * x.n * x.inner + column;
        T* to = dx + first;
        const T* from = dy + block * count * x.inner + column;
        for (int64_t i = 0; i < x.n && old != dx; ++i) {
          adds ? std::copy_n(old + first + i * x.inner, width, to + i * x.inner)
               : std::fill_n(to + i * x.inner, width, T(0));
        }
        for (int64_t i = 0; i < count; ++i) {
          T* row = to + Clamped(static_cast<int64_t>(index[i]), x.n) * x.inner;
          for (int64_t k = 0; k < width; ++k) row[k] += from[i * x.inner + k];
        }
        begin += width;
      }
    });
  }};
}

// Returns the loop over the index tensor (operand 0) and the data tensor (operand 1) without its axis.
Loop ElementsLoop(const Shape& index, const Shape& data, int64_t axis) {
  Shape without = Strides(data);
  without[axis] = 0;
  const Shape strides[] = {Strides(index), without};
  return MakeLoop(index, strides);
}

template <typename I, typename F>
void ForElements(const Loop& loop, int64_t begin, int64_t end, const I* index, int64_t n, int64_t step, F f) {
  ForRows(loop, begin, end, [&](const OperandOffsets& at, int64_t length) {
    const int64_t inner = loop.InnerStride(1);
    for (int64_t i = 0; i < length; ++i) {
      f(at[0] + i, at[1] + i * inner + Clamped(static_cast<int64_t>(index[at[0] + i]), n) * step);
    }
  });
}

template <typename I>
absl::StatusOr<Kernel> GatherElementsKernel(const KernelContext& c) {
  const int64_t axis = c.attrs().Int("axis");
  const Loop loop = ElementsLoop(c.in(1).shape, c.in().shape, axis);
  const int64_t n = c.in().shape[axis], step = Strides(c.in().shape)[axis];
  return ForSize(DTypeSize(c.in().dtype), [&]<typename T>(T) {
    return Kernel{.run = [=](const Args& args) {
      Parallel(loop.size(), 4, [&](int64_t begin, int64_t end) {
        ForElements(loop, begin, end, args.in<I>(1), n, step,
                    [&](int64_t y, int64_t x) { args.out<T>()[y] = args.in<T>()[x]; });
      });
    }};
  });
}

template <typename I, typename T>
absl::StatusOr<Kernel> GatherElementsGradKernel(const KernelContext& c) {
  const int64_t axis = c.attrs().Int("axis"), size = c.out().elements();
  const Loop loop = ElementsLoop(c.in(1).shape, c.out().shape, axis);
  const int64_t n = c.out().shape[axis], step = Strides(c.out().shape)[axis];
  return Kernel{.run = [=](const Args& args) {
    std::fill_n(args.out<T>(), size, T(0));
    ForElements(loop, 0, loop.size(), args.in<I>(1), n, step,
                [&](int64_t y, int64_t x) { args.out<T>()[x] += args.in<T>()[y]; });
  }};
}

template <typename F>
absl::StatusOr<Kernel> ForIndex(const KernelContext& c, F f) {
  return c.in(1).dtype == DType::kInt32 ? f(int32_t()) : f(int64_t());
}
absl::StatusOr<Kernel> PrepareGather(const KernelContext& c) {
  return ForIndex(c, [&]<typename I>(I) { return GatherKernel<I>(c); });
}
absl::StatusOr<Kernel> PrepareGatherGrad(const KernelContext& c) {
  return ForIndex(c, [&]<typename I>(I) {
    return ForReal(c.out().dtype, [&]<typename T>(T) { return GatherGradKernel<I, T>(c); });
  });
}
absl::StatusOr<Kernel> PrepareGatherElements(const KernelContext& c) {
  return ForIndex(c, [&]<typename I>(I) { return GatherElementsKernel<I>(c); });
}
absl::StatusOr<Kernel> PrepareGatherElementsGrad(const KernelContext& c) {
  return ForIndex(c, [&]<typename I>(I) {
    return ForReal(c.out().dtype, [&]<typename T>(T) { return GatherElementsGradKernel<I, T>(c); });
  });
}

// Returns true if `now` is taken instead of `then`, an earlier element. NaN is greater (ArgMax) or less (ArgMin) than
// any number.
template <bool kMax, bool kLast, typename T>
bool Beats(T now, T then) {
  const bool more = kMax ? now > then : now < then;
  return more || (now != now && then == then) || (kLast && (now == then || (now != now && then != then)));
}

// Returns false if none of n contiguous elements beats `then`; true if one may. One comparison each, in vectors.
template <bool kMax, bool kLast, typename T>
bool MayBeat(const T* x, int64_t n, T then) {
  int any = 0;
  for (int64_t k = 0; k < n; ++k) {
    const bool less = kLast ? (kMax ? x[k] < then : x[k] > then) : (kMax ? x[k] <= then : x[k] >= then);
    any |= less ? 0 : 1;
  }
  return any != 0;
}

// Returns the position of the greatest or least of n elements.
template <bool kMax, bool kLast, typename T>
int64_t FindBest(const T* line, int64_t n, int64_t step) {
  constexpr int64_t kBlock = 256;
  int64_t best = 0;
  for (int64_t first = 1; first < n; first += kBlock) {
    const int64_t end = std::min(n, first + kBlock);
    if (step == 1 && !MayBeat<kMax, kLast>(line + first, end - first, line[best])) continue;
    for (int64_t k = first; k < end; ++k)
      if (Beats<kMax, kLast>(line[k * step], line[best * step])) best = k;
  }
  return best;
}

// Prepares ArgMax or ArgMin.
template <bool kMax, typename T>
absl::StatusOr<Kernel> ArgKernel(const KernelContext& c) {
  const AxisView x = ViewAround(c.in().shape, c.attrs().Int("axis"));
  const auto find = c.attrs().Int("select_last_index") != 0 ? FindBest<kMax, true, T> : FindBest<kMax, false, T>;
  return Kernel{.run = [=](const Args& args) {
    Parallel(x.outer * x.inner, x.n, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* line = args.in<T>() + i / x.inner * x.n * x.inner + i % x.inner;
        args.out<int64_t>()[i] = find(line, x.n, x.inner);
      }
    });
  }};
}

template <bool kMax>
absl::StatusOr<Kernel> PrepareArg(const KernelContext& c) {
  return ForNumber(c.in().dtype, [&]<typename T>(T) { return ArgKernel<kMax, T>(c); });
}

}  // namespace

std::span<const KernelRow> IndexKernels() {
  constexpr TypeSet kGradient = kReals | Only(DType::kInt32) | Only(DType::kInt64);
  static constexpr KernelRow kRows[] = {
      {"Gather", PrepareGather, kAnyType},
      {"GatherGrad", PrepareGatherGrad, kGradient},
      {"cpu.GatherGradAdd", PrepareGatherGrad, kFloat | Only(DType::kInt32) | Only(DType::kInt64)},
      {"GatherElements", PrepareGatherElements, kAnyType},
      {"GatherElementsGrad", PrepareGatherElementsGrad, kGradient},
      {"ArgMax", PrepareArg<true>, kReals | kInts},
      {"ArgMin", PrepareArg<false>, kReals | kInts},
  };
  return kRows;
}

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
// Propagates NaN.
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

// Writes or reduces updates into elements along an axis, in order: the last write wins.
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
