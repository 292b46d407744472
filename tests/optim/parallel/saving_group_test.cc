// Ranks that have waited too long for each other in a save meet again for the next one.
#include "optim/record/checkpoint/checkpoint_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "frontend/base/status.h"
#include "tests/optim/parallel/gloo_ranks.h"

namespace onnxtrain {
namespace {

using testing::HasSubstr;

constexpr double kTimeout = 2;

TEST(SavingGroup, MeetsAgainAfterARankWasLate) {
  const std::string file = testing::TempDir() + "/saving_group";
  RunRanks(
      file, 2,
      [](Collectives& training) {
        const auto group = SavingGroup::Create(training);
        ASSERT_TRUE(group.ok()) << group.status();
        if (training.rank() == 1) std::this_thread::sleep_for(std::chrono::duration<double>(1.5 * kTimeout));
        EXPECT_FALSE((*group)->ranks().Barrier("a save").ok());
        ASSERT_TRUE((*group)->Renew().ok());
        EXPECT_TRUE((*group)->ranks().Barrier("the next save").ok());
        const Collectives* const met = &(*group)->ranks();
        ASSERT_TRUE((*group)->Renew().ok());
        EXPECT_EQ(&(*group)->ranks(), met) << "without a failure";
        if (training.rank() == 1) return;  // and is lost
        EXPECT_THAT(std::string(ToStd(training.Barrier("an update").message())), HasSubstr("rank 1 does not answer"));
      },
      kTimeout);
}

}  // namespace
}  // namespace onnxtrain
