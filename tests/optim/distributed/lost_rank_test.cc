#include "backends/collectives.h"
#include "tests/optim/distributed/gloo_ranks.h"
#include "tests/tools/scratch.h"

namespace onnxtrain {
namespace {

class LostRank : public Scratch {};

// A caller may ignore the first failure, as that of a checkpoint.
TEST_F(LostRank, IsNamedByEveryOperationThatFollows) {
  RunRanks(Path("meet"), 2, [](Collectives& ranks) {
    if (ranks.rank() == 1) return;
    const absl::Status first = ranks.Barrier("first"), second = ranks.Barrier("second");
    EXPECT_TRUE(absl::IsUnavailable(first));
    EXPECT_NE(first.message().find("first: rank 1 does not answer"), first.message().npos) << first;
    EXPECT_EQ(second, first);
  });
}

}  // namespace
}  // namespace onnxtrain
