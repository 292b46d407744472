// Loops over threads: every item once, whichever thread is late.
#include "backends/cpu/runtime/parallel.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

namespace onnxtrain::cpu {
namespace {

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

// The ranges that one thread after the other takes, where thread `first` comes alone.
Ranges TakenBy(int64_t n, int64_t cost, int64_t threads, int64_t first) {
  LoopShares shares(n, cost, threads);
  Ranges ranges;
  const auto take = [&](int64_t begin, int64_t end) { ranges.emplace_back(begin, end); };
  shares.Run(first, take);
  for (int64_t t = 0; t < threads; ++t) shares.Run(t, take);
  return ranges;
}

TEST(LoopShares, CoverEveryItemOnce) {
  for (int64_t n : {1, 2, 63, 64, 1031, 100003}) {
    for (int64_t cost : {1, 100, 100000}) {
      for (int64_t threads : {1, 2, 3, 64, 100}) {
        std::vector<int> seen(n);
        for (const auto& [begin, end] : TakenBy(n, cost, threads, threads / 2)) {
          ASSERT_LT(begin, end);
          for (int64_t i = begin; i < end; ++i) ++seen[i];
        }
        EXPECT_EQ(std::set<int>(seen.begin(), seen.end()), std::set<int>{1}) << n << " " << cost << " " << threads;
      }
    }
  }
}

// A thread that comes late finds nothing left: the others have done its share.
TEST(LoopShares, AreLeftToNoLateThread) {
  LoopShares shares(1 << 20, 1, 2);
  int64_t first = 0, late = 0;
  const auto count_first = [&](int64_t begin, int64_t end) { first += end - begin; };
  const auto count_late = [&](int64_t begin, int64_t end) { late += end - begin; };
  shares.Run(0, count_first);
  shares.Run(1, count_late);
  EXPECT_EQ(first, 1 << 20);
  EXPECT_EQ(late, 0);
}

// Own chunks come first, in order; each is a grain of work at least.
TEST(LoopShares, StartWithTheirOwnChunks) {
  const Ranges ranges = TakenBy(1 << 20, 1, 2, 1);
  EXPECT_EQ(ranges.front().first, 1 << 19);
  EXPECT_GE(ranges.front().second - ranges.front().first, kGrain);
  EXPECT_GT(ranges.size(), 8u);
}

TEST(Parallel, SharesTheWorkOfASleepingThread) {
  omp_set_num_threads(2);
  std::atomic<int64_t> slow = 0, all = 0;
  Parallel(64, kGrain, [&](int64_t begin, int64_t end) {
    if (omp_get_thread_num() == 1) {
      slow += end - begin;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    all += end - begin;
  });
  EXPECT_EQ(all, 64);
  EXPECT_LT(slow, 32);  // its even share
}

using Seconds = LateThreads::Seconds;

// Loops of a millisecond in a simulated time.
class LateThreadsTest : public testing::Test {
 protected:
  // Runs a loop that waits so long for a thread that is late, and returns how many threads took part.
  int64_t Loop(int64_t most, double wait) {
    const int64_t threads = late_.Usable(most, now_);
    const Seconds work{1e-3};
    if (threads > 1) late_.Note(threads, now_, {work, Seconds(threads == most ? wait : 0), wait == 0});
    now_ += std::chrono::duration_cast<LateThreads::Clock::duration>(work);
    return threads;
  }

  // How many of `loops` loops have all threads.
  int64_t CountWhole(int64_t most, double wait, int loops) {
    int64_t whole = 0;
    for (int i = 0; i < loops; ++i) whole += Loop(most, wait) == most;
    return whole;
  }

  LateThreads late_;
  LateThreads::Clock::time_point now_{};
};

TEST_F(LateThreadsTest, KeepAThreadThatComes) { EXPECT_EQ(CountWhole(2, 0, 1000), 1000); }

TEST_F(LateThreadsTest, BearOneWait) {
  CountWhole(2, 0, 100);
  EXPECT_EQ(CountWhole(2, 3e-3, 1), 1);
  EXPECT_EQ(CountWhole(2, 0, 100), 100);
}

TEST_F(LateThreadsTest, LeaveOutAThreadThatIsLateAgainAndAgain) {
  CountWhole(2, 0, 100);
  EXPECT_LT(CountWhole(2, 3e-3, 1000), 20);
}

TEST_F(LateThreadsTest, TakeItBackWhenItComesAgain) {
  CountWhole(2, 3e-3, 1000);
  CountWhole(2, 0, 320);  // the longest pause
  EXPECT_EQ(CountWhole(2, 0, 1000), 1000);
}

TEST_F(LateThreadsTest, LeaveOutOneOfMany) {
  CountWhole(8, 3e-3, 100);
  EXPECT_EQ(Loop(8, 3e-3), 7);
}

// Three of eight are late: a loop for two threads runs in one, and not in none.
TEST_F(LateThreadsTest, KeepOneThread) {
  for (int i = 0; i < 3; ++i) late_.Note(8, now_, {Seconds(1e-3), Seconds(3e-3), false});
  EXPECT_EQ(late_.Usable(8, now_), 5);
  EXPECT_EQ(late_.Usable(2, now_), 1);
}

}  // namespace
}  // namespace onnxtrain::cpu
