// Runs loops in several threads, and over the elements of broadcast or strided operands with as few and as long inner
// loops as the shapes allow. These loops and oneDNN share one OpenMP pool.
#pragma once

#include <omp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "frontend/graph/type.h"

namespace onnxtrain::cpu {

// Sets the number of threads for later loops of the calling thread (0: no change), at most OMP_THREAD_LIMIT. Disables
// OMP_DYNAMIC: a oneDNN primitive is created for a fixed number of threads that wait for each other, and would hang
// with fewer.
inline void SetNumThreads(int threads) {
  omp_set_dynamic(0);
  omp_set_num_threads(std::min(threads > 0 ? threads : omp_get_max_threads(), omp_get_thread_limit()));
}

// Reduces the number of threads of loops while other processes occupy processors.
//
// OpenMP ends a loop when every thread has joined it, even one that finds no work left. A thread whose processor runs
// another process joins a time slice late, which is longer than most loops. If loops wait longer for their last thread
// than it saves, the loops of the next milliseconds run without it. One object serves the loops that one thread starts.
class LateThreads {
 public:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;

  // The time until the starting thread of a loop ran out of work, and the time that it then waited for the others.
  struct Times {
    Seconds work, wait;
    bool all_came;  // all threads had joined before the wait
  };

  // Returns how many of `most` threads may join a loop that begins now; at least 1.
  int64_t Usable(int64_t most, Clock::time_point now) {
    if (left_out_ > 0 && now >= until_) TakeBack(now);
    return std::max<int64_t>(most - left_out_, 1);
  }

  // Records a loop of at least 2 threads that began at `begin` and has ended.
  void Note(int64_t threads, Clock::time_point begin, const Times& times) {
    const Seconds last_share = times.work / static_cast<double>(threads - 1);
    balance_ = std::min(balance_ * kKept + (times.all_came ? last_share : Seconds(0)) - times.wait, kMostBalance);
    if (left_out_ == 0 && ++loops_ == kLoopsOfPeace) pause_ = kShortestPause;
    if (balance_ < -kDebt) LeaveOut(begin + ToTicks(times.work + times.wait));
  }

 private:
  static constexpr double kKept = 0.95;  // decay of the balance per loop
  // Tolerates one late time slice (3 ms or more) among loops of half a millisecond, but not two.
  static constexpr Seconds kMostBalance{4e-3}, kDebt{0.2e-3};
  static constexpr Seconds kShortestPause{5e-3}, kLongestPause{320e-3};
  static constexpr int kLoopsOfPeace = 64;

  static Clock::duration ToTicks(Seconds seconds) { return std::chrono::duration_cast<Clock::duration>(seconds); }

  void LeaveOut(Clock::time_point now) {
    ++left_out_;
    until_ = now + ToTicks(pause_);
    pause_ = std::min(pause_ * 2, kLongestPause);
    balance_ = Seconds(0);
  }

  // Tries one more thread; a single late time slice removes it again, for twice as long.
  void TakeBack(Clock::time_point now) {
    --left_out_;
    until_ = now + ToTicks(kShortestPause);
    balance_ = Seconds(0);
    loops_ = 0;
  }

  int64_t left_out_ = 0, loops_ = 0;
  Clock::time_point until_;
  Seconds pause_ = kShortestPause, balance_{0};
};

// The work, in additions, above which another thread pays.
inline constexpr int64_t kGrain = 16384;

// Divides the items of a loop into one share per thread. A thread takes the chunks of its own share first, so that
// consecutive loops find their data in its cache, and then the remaining chunks of other shares: a thread that lost its
// processor to another process delays one chunk, not its whole share.
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
  static constexpr int64_t kMaxShares = 64, kChunksPerShare = 32, kAligned = 64;

  struct alignas(64) Share {
    std::atomic<int64_t> next;
    int64_t end;
  };

  // Returns the items of a chunk, whose work is at least kGrain; if there are kAligned or more, a multiple of kAligned.
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

// Runs a loop in `threads` ≥ 2 threads and reports its times since `begin`.
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

// Calls f(begin, end) for ranges that cover [0, n), in several threads; `cost` is the work per item, in additions. The
// result of an item must not depend on its range or thread.
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

inline constexpr int kMaxOperands = 16;
using OperandOffsets = std::array<int64_t, kMaxOperands>;

// Extents with the strides (in elements) of every operand. Iterates in row-major order.
struct Loop {
  int operands = 0;
  std::vector<int64_t> extents;         // at least one; the last is the inner loop
  std::vector<OperandOffsets> strides;  // by axis

  int64_t inner() const { return extents.back(); }
  int64_t InnerStride(int operand) const { return strides.back()[operand]; }
  int64_t rows() const;  // number of inner loops
  int64_t size() const { return rows() * inner(); }
};

// Merges adjacent axes where the strides of every operand allow it and drops axes of extent 1.
Loop MakeLoop(const Shape& extents, std::span<const Shape> strides);

// Returns the strides of a dense tensor of shape `from`, broadcast to `to`: 0 along broadcast axes.
Shape BroadcastStrides(const Shape& from, const Shape& to);

// Returns the loop over a dense output and its broadcast inputs: operand 0 is the output, then the inputs.
Loop BroadcastLoop(const Shape& output, std::span<const Shape> inputs);

// Calls f(offsets, count) for each piece of an inner loop that covers the elements [begin, end); `offsets` are
// in elements.
template <typename F>
void ForRows(const Loop& loop, int64_t begin, int64_t end, F&& f) {
  if (begin >= end) return;
  const int axes = static_cast<int>(loop.extents.size());
  const int64_t inner = loop.inner();
  std::array<int64_t, 64> index;  // a shape of 2^40 elements has at most 40 axes that are not 1
  OperandOffsets row{};
  int64_t r = begin / inner, column = begin % inner;
  for (int a = axes - 2; a >= 0; --a) {
    index[a] = r % loop.extents[a];
    r /= loop.extents[a];
    for (int k = 0; k < loop.operands; ++k) row[k] += index[a] * loop.strides[a][k];
  }
  while (true) {
    const int64_t count = inner - column < end - begin ? inner - column : end - begin;
    OperandOffsets offsets = row;
    if (column != 0) {
      for (int k = 0; k < loop.operands; ++k) offsets[k] += column * loop.strides[axes - 1][k];
    }
    f(offsets, count);
    begin += count;
    if (begin >= end) return;
    column = 0;
    for (int a = axes - 2;; --a) {
      for (int k = 0; k < loop.operands; ++k) row[k] += loop.strides[a][k];
      if (++index[a] < loop.extents[a]) break;
      for (int k = 0; k < loop.operands; ++k) row[k] -= loop.extents[a] * loop.strides[a][k];
      index[a] = 0;
    }
  }
}

}  // namespace onnxtrain::cpu
