#include "backends/ordered_reduce.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "frontend/base/strings.h"

namespace onnxtrain {
namespace {

// Two ranks with equal values, of which this is one. Notes what is summed.
class FakeRanks : public Collectives {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  absl::Status AllReduce(std::string_view what, DType dtype, std::span<std::byte> values, Reduction op) override {
    EXPECT_EQ(dtype, DType::kFloat32);
    EXPECT_EQ(op, Reduction::kSum);
    if (calls_++ == fails_at) return absl::UnavailableError(StrCat(what, ": rank 1 does not answer"));
    const std::span floats(reinterpret_cast<float*>(values.data()), values.size() / sizeof(float));
    for (float& x : floats) x *= 2;
    summed.push_back(floats[0]);
    return absl::OkStatus();
  }
  absl::Status Broadcast(std::string_view, int, std::span<std::byte>) override { return absl::OkStatus(); }
  absl::Status AllGather(std::string_view, std::span<const std::byte>, std::span<std::byte>) override {
    return absl::OkStatus();
  }
  absl::Status Barrier(std::string_view) override { return absl::OkStatus(); }

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
  FakeRanks ranks_;
  std::vector<std::vector<float>> memory_;
};

TEST_F(OrderedReduceTest, SumsInTheOrderOfTheSlices) {
  OrderedReduce reduce(&ranks_, "sum", DType::kFloat32, Slices());
  for (int update = 1; update <= 3; ++update) {
    reduce.Begin();
    reduce.Ready(2);
    reduce.Ready(1);
    reduce.Ready(0);
    EXPECT_TRUE(reduce.Finish().ok());
    const auto factor = static_cast<float>(1 << update);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(memory_[i], std::vector<float>(10 * (i + 1), factor * (i + 1)));
  }
  EXPECT_EQ(ranks_.summed, (std::vector<float>{2, 4, 6, 4, 8, 12, 8, 16, 24}));
}

TEST_F(OrderedReduceTest, FinishSumsWhatNeverBecameReady) {
  OrderedReduce reduce(&ranks_, "sum", DType::kFloat32, Slices());
  reduce.Begin();
  EXPECT_TRUE(reduce.Finish().ok());
  EXPECT_EQ(ranks_.summed, (std::vector<float>{2, 4, 6}));
}

TEST_F(OrderedReduceTest, SlicesAreSummedBeforeFinish) {
  OrderedReduce reduce(&ranks_, "sum", DType::kFloat32, Slices());
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
  ranks_.fails_at = 1;
  OrderedReduce reduce(&ranks_, "sum", DType::kFloat32, Slices());
  reduce.Begin();
  reduce.Ready(0);
  reduce.Ready(1);
  const absl::Status status = reduce.Finish();
  EXPECT_EQ(status.message(), "sum: rank 1 does not answer");
  EXPECT_EQ(ranks_.summed, (std::vector<float>{2})) << "nothing is summed behind the slice that failed";
}

TEST_F(OrderedReduceTest, EndsWithoutUpdates) {
  OrderedReduce reduce(&ranks_, "sum", DType::kFloat32, Slices());
  OrderedReduce none(&ranks_, "sum", DType::kFloat32, {});
  none.Begin();
  EXPECT_TRUE(none.Finish().ok());
}

}  // namespace
}  // namespace onnxtrain
