// Collectives over NCCL's interface, with a stand-in for the library. Ranks are threads.
#include "backends/torch/nccl/nccl_collectives.h"

#include <gmock/gmock.h>

#include "tests/optim/parallel/gloo_ranks.h"
#include "tests/optim/parallel/local_nccl.h"
#include "tests/tools/scratch.h"

namespace onnxtrain {
namespace {

using aten::MeetOverNccl;
using aten::Nccl;
using ::testing::HasSubstr;

template <typename T>
std::span<std::byte> Bytes(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

class NcclTest : public Scratch {
 protected:
  const Nccl local_ = LocalNccl();

  // Calls `work` with the groups of each rank.
  void RunOnDevices(int size, const std::function<void(Collectives& device, Collectives& host)>& work) const {
    RunRanks(Path("meet"), size, [&](Collectives& host) {
      auto device = MeetOverNccl(&local_, std::make_unique<LocalQueue>(), host);
      ASSERT_TRUE(device.ok()) << device.status();
      ASSERT_NE(*device, nullptr);
      EXPECT_TRUE((*device)->on_device());
      work(**device, host);
    });
  }
};

TEST_F(NcclTest, Reduces) {
  RunOnDevices(3, [](Collectives& device, Collectives&) {
    const int rank = device.rank();
    std::vector<float> f32 = {1.5F * rank, 2};
    EXPECT_TRUE(device.AllReduce("a sum", DType::kFloat32, Bytes(f32), Reduction::kSum).ok());
    EXPECT_EQ(f32, (std::vector<float>{4.5F, 6}));
    std::vector<double> f64 = {1.0 + rank};
    EXPECT_TRUE(device.AllReduce("a maximum", DType::kFloat64, Bytes(f64), Reduction::kMax).ok());
    EXPECT_EQ(f64, std::vector<double>{3});
    std::vector<int64_t> i64 = {int64_t{1} << (40 + rank)};
    EXPECT_TRUE(device.AllReduce("a minimum", DType::kInt64, Bytes(i64), Reduction::kMin).ok());
    EXPECT_EQ(i64, std::vector<int64_t>{int64_t{1} << 40});
  });
}

TEST_F(NcclTest, MovesValuesAmongRanks) {
  RunOnDevices(3, [](Collectives& device, Collectives&) {
    const int rank = device.rank();
    std::vector<int> own = {rank, 10 + rank}, all(6);
    EXPECT_TRUE(device.AllGather("a gather", Bytes(own), Bytes(all)).ok());
    EXPECT_EQ(all, (std::vector<int>{0, 10, 1, 11, 2, 12}));
    std::vector<int> root = {rank};
    EXPECT_TRUE(device.Broadcast("a broadcast", 2, Bytes(root)).ok());
    EXPECT_EQ(root, std::vector<int>{2});
    std::vector<int> parts = {10 * rank, 10 * rank + 1, 10 * rank + 2}, received(3);
    EXPECT_TRUE(device.AllToAll("an exchange", Bytes(parts), Bytes(received)).ok());
    EXPECT_EQ(received, (std::vector<int>{rank, 10 + rank, 20 + rank}));
    std::vector<int> rows = {rank, 10 + rank}, gathered(6);
    device.BeginGather("rows", Bytes(rows), Bytes(gathered), 2);
    EXPECT_TRUE(device.AwaitGather().ok());
    EXPECT_EQ(gathered, (std::vector<int>{0, 1, 2, 10, 11, 12}));
  });
}

TEST_F(NcclTest, IsNotUsedWhereARankHasNone) {
  RunRanks(Path("meet"), 2, [&](Collectives& host) {
    absl::StatusOr<const Nccl*> nccl = &local_;
    if (host.rank() == 1) nccl = absl::NotFoundError("libnccl.so.2 was not found");
    const auto device = MeetOverNccl(nccl, std::make_unique<LocalQueue>(), host);
    ASSERT_TRUE(device.ok()) << device.status();
    EXPECT_EQ(*device, nullptr);
    EXPECT_TRUE(host.Barrier("what follows").ok());
  });
}

TEST_F(NcclTest, IsNotUsedWhereARankCannotMeetTheOthers) {
  RunRanks(Path("meet"), 2, [&](Collectives& host) {
    Nccl nccl = local_;
    if (host.rank() == 0) nccl.init_rank = [](Nccl::Communicator*, int, Nccl::UniqueId, int) { return 5; };
    const auto device = MeetOverNccl(&nccl, std::make_unique<LocalQueue>(), host);
    ASSERT_TRUE(device.ok()) << device.status();
    EXPECT_EQ(*device, nullptr);
    EXPECT_TRUE(host.Barrier("what follows").ok());
  });
}

// A device that never comes to the end of an operation.
class StuckQueue : public LocalQueue {
 public:
  absl::StatusOr<bool> ReachedMark() override { return false; }
};

absl::Status SumOnStuckDevice(const Nccl& nccl, Collectives& host) {
  auto device = MeetOverNccl(&nccl, std::make_unique<StuckQueue>(), host).value();
  std::vector<float> values = {1};
  absl::Status failed = device->AllReduce("a sum", DType::kFloat32, Bytes(values), Reduction::kSum);
  EXPECT_EQ(device->Barrier("what follows"), failed);
  return failed;
}

Nccl StuckNccl() {
  Nccl nccl = LocalNccl();
  nccl.all_reduce = [](const void*, void*, size_t, int, int, Nccl::Communicator, Nccl::Stream) {
    return Nccl::kSuccess;
  };
  return nccl;
}

TEST_F(NcclTest, EndsAnOperationThatTakesLongerThanTheTimeOut) {
  RunRanks(
      Path("meet"), 2,
      [&](Collectives& host) {
        EXPECT_THAT(SumOnStuckDevice(StuckNccl(), host).message(), HasSubstr("a sum: NCCL: no answer within 1 s"));
      },
      1);
}

TEST_F(NcclTest, SaysAnErrorOfTheEngine) {
  RunRanks(Path("meet"), 2, [&](Collectives& host) {
    Nccl nccl = StuckNccl();
    nccl.get_async_error = [](Nccl::Communicator, Nccl::Result* error) {
      *error = 6;
      return Nccl::kSuccess;
    };
    EXPECT_THAT(SumOnStuckDevice(nccl, host).message(), HasSubstr("a sum: NCCL: remote process exited"));
  });
}

TEST_F(NcclTest, NamesARankThatIsGone) {
  RunRanks(
      Path("meet"), 3,
      [&](Collectives& host) {
        if (host.rank() == 2) {
          EXPECT_TRUE(MeetOverNccl(&local_, std::make_unique<LocalQueue>(), host).ok());
          return;
        }
        EXPECT_THAT(SumOnStuckDevice(StuckNccl(), host).message(), HasSubstr("rank 2"));
      },
      1);
}

TEST_F(NcclTest, ARankThatClosesTheGroupTellsTheHosts) {
  RunOnDevices(2, [](Collectives& device, Collectives& host) {
    if (device.rank() == 0) return device.Close(absl::DataLossError("a reason"));
    EXPECT_THAT(host.Barrier("what follows").message(), HasSubstr("a reason"));
    EXPECT_TRUE(device.closed());
  });
}

}  // namespace
}  // namespace onnxtrain
