#include <signal.h>

#include "backends/collectives.h"
#include "frontend/base/strings.h"
#include "tests/optim/parallel/gloo_ranks.h"
#include "tests/tools/scratch.h"

namespace onnxtrain {
namespace {

class LostRank : public Scratch {};

using Handler = void (*)(int);

// Of SIGPIPE, which a connection raises that the other end has closed.
Handler HandlerOfBrokenPipes() {
  struct sigaction action = {};
  EXPECT_EQ(sigaction(SIGPIPE, nullptr, &action), 0);
  return action.sa_handler;
}

TEST_F(LostRank, DoesNotEndTheProcess) {
  const Handler own = [](int) {};
  for (const auto& [before, after] : {std::pair<Handler, Handler>(SIG_DFL, SIG_IGN), {own, own}}) {
    signal(SIGPIPE, before);
    RunRanks(Path("meet"), 2, [](Collectives& ranks) { EXPECT_TRUE(ranks.Barrier("met").ok()); });
    EXPECT_EQ(HandlerOfBrokenPipes(), after);
  }
  signal(SIGPIPE, SIG_IGN);
}

// A caller may ignore the first failure, as that of a checkpoint.
TEST_F(LostRank, IsNamedByEveryOperationThatFollows) {
  RunRanks(Path("meet"), 2, [](Collectives& ranks) {
    ASSERT_TRUE(ranks.Barrier("met").ok());  // else rank 0 may still be connecting when rank 1 leaves
    if (ranks.rank() == 1) return;
    const absl::Status first = ranks.Barrier("first"), second = ranks.Barrier("second");
    EXPECT_TRUE(absl::IsUnavailable(first));
    EXPECT_NE(first.message().find("first: rank 1 does not answer"), first.message().npos) << first;
    EXPECT_EQ(second, first);
  });
}

// Once, whatever group it is found in.
TEST_F(LostRank, IsReportedByTheLowestRankThatIsLeft) {
  RunRanks(Path("meet"), 3, [](Collectives& ranks) {
    const auto met = NewGroupOfAll(ranks, "met");
    ASSERT_TRUE(met.ok()) << met.status();
    if (ranks.rank() == 0) return;
    EXPECT_FALSE(ranks.reports());
    EXPECT_FALSE((*met)->Barrier("inner").ok());
    EXPECT_EQ(ranks.reports(), ranks.rank() == 1);
  });
}

// Those that wait, also in a group that was met in the one that is closed, say the error of the rank that has closed
// it.
TEST_F(LostRank, SaysWhyItHasClosedTheGroup) {
  for (const int closing : {0, 1}) {
    // A file of its own: a thread that asks the other group's store may remove that file later.
    RunRanks(Path(StrCat("meet", closing)), 3, [&](Collectives& ranks) {
      const auto met = NewGroupOfAll(ranks, "met");
      ASSERT_TRUE(met.ok()) << met.status();
      if (ranks.rank() == closing) return ranks.Close(absl::InternalError("the disk is gone"));
      const absl::Status inner = (*met)->Barrier("inner"), outer = ranks.Barrier("outer");
      EXPECT_EQ(inner, absl::UnavailableError(StrCat("rank ", closing, ": the disk is gone")));
      EXPECT_EQ(outer, inner);
      EXPECT_TRUE(ranks.closed() && (*met)->closed());
    });
  }
}

// The other ranks still agree over the group that it was met in.
TEST_F(LostRank, ClosesAGroupAlone) {
  RunRanks(Path("meet"), 3, [](Collectives& ranks) {
    const auto met = NewGroupOfAll(ranks, "met");
    ASSERT_TRUE(met.ok()) << met.status();
    absl::Status own = absl::InternalError("broken");
    if (ranks.rank() == 1) {
      (*met)->Close(own);
    } else {
      own = (*met)->Barrier("inner");
      EXPECT_TRUE(absl::IsUnavailable(own)) << own;
    }
    EXPECT_FALSE(ranks.closed());
    const absl::Status agreed = AgreeOnStatus(ranks, "agreement", own);
    EXPECT_EQ(agreed, absl::InternalError(ranks.rank() == 1 ? "broken" : "rank 1: broken"));
  });
}

}  // namespace
}  // namespace onnxtrain
