#include "backends/collectives.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

namespace onnxtrain {
namespace {

// Of two ranks with equal values. Notes what is summed.
class FakeSum {
 public:
  absl::Status operator()(std::span<std::byte> slice) {
    if (calls_++ == fails_at) return absl::UnavailableError("sum: rank 1 does not answer");
    const std::span floats(reinterpret_cast<float*>(slice.data()), slice.size() / sizeof(float));
    for (float& x : floats) x *= 2;
    summed.push_back(floats[0]);
    return absl::OkStatus();
  }

  int fails_at = -1;          // the call that fails
  std::vector<float> summed;  // first values, in the order of the sums

 private:
  int calls_ = 0;
};

class OrderedReduceTest : public ::testing::Test {
 protected:
  // Slice i consists of i + 1, 10·(i + 1) times.
  OrderedReduceTest() {
    for (int i = 1; i <= 3; ++i) memory_.emplace_back(10 * i, static_cast<float>(i));
  }

  std::vector<std::span<std::byte>> Slices() {
    std::vector<std::span<std::byte>> slices;
    for (auto& m : memory_) slices.push_back(std::as_writable_bytes(std::span(m)));
    return slices;
  }
  FakeSum sum_;
  std::vector<std::vector<float>> memory_;
};

TEST_F(OrderedReduceTest, SumsInTheOrderOfTheSlices) {
  OrderedReduce reduce(std::ref(sum_), Slices());
  for (int update = 1; update <= 3; ++update) {
    reduce.Begin();
    reduce.Ready(2);
    reduce.Ready(1);
    reduce.Ready(0);
    EXPECT_TRUE(reduce.Finish().ok());
    const auto factor = static_cast<float>(1 << update);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(memory_[i], std::vector<float>(10 * (i + 1), factor * (i + 1)));
  }
  EXPECT_EQ(sum_.summed, (std::vector<float>{2, 4, 6, 4, 8, 12, 8, 16, 24}));
}

TEST_F(OrderedReduceTest, FinishSumsWhatNeverBecameReady) {
  OrderedReduce reduce(std::ref(sum_), Slices());
  reduce.Begin();
  EXPECT_TRUE(reduce.Finish().ok());
  EXPECT_EQ(sum_.summed, (std::vector<float>{2, 4, 6}));
}

TEST_F(OrderedReduceTest, SlicesAreSummedBeforeFinish) {
  OrderedReduce reduce(std::ref(sum_), Slices());
  reduce.Begin();
  reduce.Ready(0);
  reduce.Ready(2);
  // A test that hangs fails by its time-out.
  while (reduce.summed() < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(reduce.summed(), 1) << "slice 2 waits for slice 1";
  EXPECT_EQ(memory_[0][0], 2);
  EXPECT_EQ(memory_[2][0], 3);
  EXPECT_TRUE(reduce.Finish().ok());
}

TEST_F(OrderedReduceTest, AnErrorEndsTheSumsAndIsReturned) {
  sum_.fails_at = 1;
  OrderedReduce reduce(std::ref(sum_), Slices());
  reduce.Begin();
  reduce.Ready(0);
  reduce.Ready(1);
  const absl::Status status = reduce.Finish();
  EXPECT_EQ(status.message(), "sum: rank 1 does not answer");
  EXPECT_EQ(sum_.summed, (std::vector<float>{2})) << "nothing is summed behind the slice that failed";
}

TEST_F(OrderedReduceTest, PassesOverWhatIsLeftAfterAnErrorOfTheCaller) {
  OrderedReduce reduce(std::ref(sum_), Slices());
  reduce.Begin();
  reduce.Ready(0);
  while (reduce.summed() < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(reduce.Finish(absl::UnavailableError("gone")), absl::UnavailableError("gone"));
  EXPECT_EQ(sum_.summed, (std::vector<float>{2}));
}

TEST_F(OrderedReduceTest, EndsWithoutUpdates) {
  OrderedReduce reduce(std::ref(sum_), Slices());
  OrderedReduce none(std::ref(sum_), {});
  none.Begin();
  EXPECT_TRUE(none.Finish().ok());
}

}  // namespace
}  // namespace onnxtrain
