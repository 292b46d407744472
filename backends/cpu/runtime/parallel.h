// Loops over threads. One OpenMP pool serves these loops and oneDNN.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace onnxtrain::cpu {

// About as much work (in elements passed over) as it takes to be worth waking another thread.
inline constexpr int64_t kGrain = 16384;

// Calls f(begin, end) for consecutive ranges that cover [0, n), one per thread; `cost` is the work per item. What an
// item computes must not depend on the range it is in.
template <typename F>
void Parallel(int64_t n, int64_t cost, F&& f) {
  if (n <= 0) return;
  const int64_t useful = n * std::max<int64_t>(cost, 1) / kGrain;
  const int64_t threads = std::min<int64_t>({static_cast<int64_t>(omp_get_max_threads()), n, useful});
  if (threads <= 1) {
    f(int64_t{0}, n);
    return;
  }
#pragma omp parallel num_threads(static_cast <int>(threads))
  {
    const int64_t me = omp_get_thread_num(), all = omp_get_num_threads();
    f(n * me / all, n * (me + 1) / all);
  }
}

}  // namespace onnxtrain::cpu
