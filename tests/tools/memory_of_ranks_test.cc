// What each rank takes, as its memory plan says.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tests/tools/run_of_ranks.h"

namespace onnxtrain {
namespace {

class MemoryOfRanks : public RunOfRanks {
 protected:
  MemoryOfRanks() { tiny::Wide().Save(Path("wide.onnx")); }

  struct Use {
    double planned = 0, measured = 0;  // MiB
  };
  Use OfLeader() const {
    const auto summary = nlohmann::json::parse(ReadAll(Path("r/summary.json")));
    const double planned = summary["planned_peak_bytes"], measured = summary["measured_peak_bytes"];
    return {planned / (1 << 20), measured / (1 << 20)};
  }
  Use OfFollower() const {
    const std::string log = ReadAll(Path("r/rank-1.log"));
    const size_t at = log.find("memory: ");
    Use use;
    EXPECT_NE(at, std::string::npos) << log;
    if (at == std::string::npos) return use;
    EXPECT_EQ(
        std::sscanf(log.c_str() + at, "memory: planned %lf MiB; the process took %lf MiB", &use.planned, &use.measured),
        2)
        << log;
    return use;
  }
};

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which take memory for themselves
TEST_F(MemoryOfRanks, IsThatOfThePlanWhereEverythingIsDivided) {
  RunTwo("--model wide.onnx --backend cpu --threads 1 --batch-size 512 --max-steps 4 --shard full --out r", "", "",
         true);
  ASSERT_EQ(ExitCode(0), 0) << ReadAll(Path("o0"));
  const Use leader = OfLeader(), follower = OfFollower();
  EXPECT_GT(follower.planned, 200);
  EXPECT_NEAR(follower.measured, follower.planned, 0.1 * follower.planned);
  EXPECT_NEAR(leader.measured, leader.planned, 0.1 * leader.planned);  // it also gathers and writes the model
}

TEST_F(MemoryOfRanks, IsThatOfThePlanOfAStage) {
  RunTwo("--model wide.onnx --backend cpu --threads 1 --batch-size 512 --max-steps 4 --pipeline 2 --out r", "", "",
         true);
  ASSERT_EQ(ExitCode(0), 0) << ReadAll(Path("o0"));
  const Use follower = OfFollower();
  EXPECT_GT(follower.planned, 200);
  EXPECT_NEAR(follower.measured, follower.planned, 0.1 * follower.planned);
}
#endif

}  // namespace
}  // namespace onnxtrain
