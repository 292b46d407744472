// Selects the largest or smallest elements along an axis.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backends/cpu/kernels/typed.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"

namespace onnxtrain::cpu {
namespace {

// Returns true if a > b, where NaN is larger than any number.
template <typename T>
bool More(T a, T b) {
  return a != a ? b == b : a > b;
}

// Sorts the k first indices of one row by value; `order` has space for n indices. Ties keep the order of indices.
template <typename T>
void SelectTopK(const T* x, int64_t n, int64_t stride, int64_t k, bool largest, int64_t* order) {
  std::iota(order, order + n, 0);
  std::partial_sort(order, order + k, order + n, [=](int64_t i, int64_t j) {
    const T a = x[i * stride], b = x[j * stride];
    if (largest ? More(a, b) : More(b, a)) return true;
    if (largest ? More(b, a) : More(a, b)) return false;
    return i < j;
  });
}

template <typename T>
Kernel TopKKernel(const KernelContext& c) {
  const AxisView x = ViewAround(c.in().shape, c.attrs().Int("axis"));
  const int64_t k = c.attrs().Int("k");
  const bool largest = c.attrs().Int("largest") != 0;
  const size_t workspace = static_cast<size_t>(x.n) * sizeof(int64_t) * omp_get_max_threads();
  return {.run =
              [=](const Args& args) {
                Parallel(x.outer * x.inner, x.n * 8, [&](int64_t begin, int64_t end) {
                  auto* order = static_cast<int64_t*>(args.workspace) + x.n * omp_get_thread_num();
                  for (int64_t i = begin; i < end; ++i) {
                    const T* line = args.in<T>() + i / x.inner * x.n * x.inner + i % x.inner;
                    const int64_t to = i / x.inner * k * x.inner + i % x.inner;
                    SelectTopK(line, x.n, x.inner, k, largest, order);
                    for (int64_t j = 0; j < k; ++j) {
                      args.out<T>()[to + j * x.inner] = line[order[j] * x.inner];
                      args.out<int64_t>(1)[to + j * x.inner] = order[j];
                    }
                  }
                });
              },
          .workspace = workspace};
}

absl::StatusOr<Kernel> PrepareTopK(const KernelContext& c) {
  return ForNumber(c.in().dtype, [&]<typename T>(T) -> absl::StatusOr<Kernel> { return TopKKernel<T>(c); });
}

}  // namespace

std::span<const KernelRow> TopKKernels() {
  static constexpr KernelRow kRows[] = {{"TopK", PrepareTopK, kReals | kInts}};
  return kRows;
}

}  // namespace onnxtrain::cpu
