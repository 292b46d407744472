// Leaves threads out of loops while other processes hold their processors.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace onnxtrain::cpu {

// OpenMP ends a loop when every thread has come to it, also one that finds nothing left to do. A thread whose processor
// runs another process comes a time slice late, which is longer than most loops. So what loops gain by their last
// thread is weighed against what they wait for it, and where that does not pay, the thread is left out of the loops of
// the next milliseconds. One object serves the loops that one thread starts.
class LateThreads {
 public:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;

  // How long a loop ran until the thread that started it found no work left, and how long that waited for the others.
  struct Times {
    Seconds work, wait;
    bool all_came;  // before the wait
  };

  // How many of `most` threads may take part in a loop that begins now: 1 at least.
  int64_t Usable(int64_t most, Clock::time_point now) {
    if (left_out_ > 0 && now >= until_) TakeBack(now);
    return std::max<int64_t>(most - left_out_, 1);
  }

  // Notes the times of a loop of so many threads (2 at least) that began then and has ended.
  void Note(int64_t threads, Clock::time_point begin, const Times& times) {
    const Seconds last_share = times.work / static_cast<double>(threads - 1);
    balance_ = std::min(balance_ * kKept + (times.all_came ? last_share : Seconds(0)) - times.wait, kMostBalance);
    if (left_out_ == 0 && ++loops_ == kLoopsOfPeace) pause_ = kShortestPause;
    if (balance_ < -kDebt) LeaveOut(begin + ToTicks(times.work + times.wait));
  }

 private:
  static constexpr double kKept = 0.95;  // of the balance, by each loop
  // One late time slice (3 ms and more) among loops of half a millisecond is borne, two are not.
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

  // Tries one thread more; a single wait leaves it out again, for twice as long.
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

}  // namespace onnxtrain::cpu
