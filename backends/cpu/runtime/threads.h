// How many threads loops and primitives run in.
#pragma once

#include <omp.h>

#include <algorithm>

namespace onnxtrain::cpu {

// From now on loops of the calling thread run in so many threads (0: as many as its environment says), as far as
// OMP_THREAD_LIMIT lets them, and never in fewer because the machine is busy (OMP_DYNAMIC). oneDNN's primitives are
// made for a number of threads, which wait for each other: one that never comes is waited for without end.
inline void SetNumThreads(int threads) {
  omp_set_dynamic(0);
  omp_set_num_threads(std::min(threads > 0 ? threads : omp_get_max_threads(), omp_get_thread_limit()));
}

}  // namespace onnxtrain::cpu
