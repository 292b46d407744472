// Loops over threads. One OpenMP pool serves these loops and oneDNN.
#pragma once

#include <omp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "backends/cpu/runtime/late_threads.h"

namespace onnxtrain::cpu {

// About as much work (in elements passed over) as it takes to be worth waking another thread.
inline constexpr int64_t kGrain = 16384;

// The items of a loop, in one share per thread. A thread takes the chunks of its own share, which is what the next
// loop finds in its cache, and then those that others have not come to: a thread that lost its processor to another
// process holds up one chunk and not its whole share.
class LoopShares {
 public:
  LoopShares(int64_t n, int64_t cost, int64_t threads)
      : count_(std::min<int64_t>(threads, kMaxShares)), chunk_(ChunkItems(n, cost, count_)) {
    for (int64_t s = 0; s < count_; ++s) {
      shares_[s].next.store(n * s / count_, std::memory_order_relaxed);
      shares_[s].end = n * (s + 1) / count_;
    }
  }

  // Every thread calls this once; together they call f(begin, end) for all items.
  template <typename F>
  void Run(int64_t thread, F& f) {
    for (int64_t s = 0; s < count_; ++s) RunShare(shares_[(thread + s) % count_], f);
  }

 private:
  static constexpr int64_t kMaxShares = 64, kChunksPerShare = 8, kAligned = 64;

  struct alignas(64) Share {
    std::atomic<int64_t> next;
    int64_t end;
  };

  // Chunks of a grain at least; long ones have a multiple of kAligned items.
  static int64_t ChunkItems(int64_t n, int64_t cost, int64_t shares) {
    const int64_t grain = kGrain / std::max<int64_t>(cost, 1), even = n / (shares * kChunksPerShare);
    const int64_t items = std::max<int64_t>({grain, even, 1});
    return items < kAligned ? items : items / kAligned * kAligned;
  }

  template <typename F>
  void RunShare(Share& share, F& f) {
    while (share.next.load(std::memory_order_relaxed) < share.end) {
      const int64_t begin = share.next.fetch_add(chunk_, std::memory_order_relaxed);
      if (begin < share.end) f(begin, std::min(begin + chunk_, share.end));
    }
  }

  int64_t count_, chunk_;
  std::array<Share, kMaxShares> shares_;
};

// Runs a loop in so many threads (2 at least) and tells what it took from `begin` on.
template <typename F>
LateThreads::Times RunLoop(int64_t n, int64_t cost, int64_t threads, LateThreads::Clock::time_point begin, F& f) {
  LoopShares shares(n, cost, threads);
  alignas(64) std::atomic<int64_t> came = 0;
  LateThreads::Clock::time_point worked;
  bool all_came = true;
#pragma omp parallel num_threads(static_cast <int>(threads))
  {
    came.fetch_add(1, std::memory_order_relaxed);
    shares.Run(omp_get_thread_num(), f);
    if (omp_get_thread_num() == 0) {
      worked = LateThreads::Clock::now();
      all_came = came.load(std::memory_order_relaxed) == omp_get_num_threads();
    }
  }
  return {worked - begin, LateThreads::Clock::now() - worked, all_came};
}

// Calls f(begin, end) for ranges that cover [0, n), in several threads; `cost` is the work per item. What an item
// computes must not depend on the range it is in or on the thread.
template <typename F>
void Parallel(int64_t n, int64_t cost, F&& f) {
  if (n <= 0) return;
  const int64_t useful = n * std::max<int64_t>(cost, 1) / kGrain;
  const int64_t wanted = std::min<int64_t>({static_cast<int64_t>(omp_get_max_threads()), n, useful});
  if (wanted > 1) {
    thread_local LateThreads late;
    const auto begin = LateThreads::Clock::now();
    const int64_t threads = std::min(wanted, late.Usable(omp_get_max_threads(), begin));
    if (threads > 1) return late.Note(threads, begin, RunLoop(n, cost, threads, begin, f));
  }
  f(int64_t{0}, n);
}

}  // namespace onnxtrain::cpu
