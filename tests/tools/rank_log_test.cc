// Processes that a launcher starts together: rank 0 prints, each one logs to a file of its own.
#include "frontend/base/strings.h"
#include "frontend/data/formats/npz.h"
#include "tests/tools/blobs.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

class RankLog : public Scratch {
 protected:
  RankLog() {
    tiny::Mlp(3).Save(Path("m.onnx"));
    EXPECT_TRUE(WriteNpz(Path("d.npz"), Blobs(30)).ok());
  }
  Outcome Train(const std::string& ranks, const std::string& flags = "") const {
    return Run("--model m.onnx --data d.npz --max-steps 4 --out r " + flags, "env " + ranks);
  }
};

TEST_F(RankLog, RankZeroPrintsAndLogs) {
  const Outcome o = Train("RANK=0 WORLD_SIZE=2");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("trained"), std::string::npos);
  EXPECT_NE(o.err.find("training is not distributed"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("  loss "), std::string::npos) << o.err;
  EXPECT_EQ(ReadAll(Path("r/rank-0.log")), o.err);
  EXPECT_TRUE(Exists("r/model.onnx"));
}

TEST_F(RankLog, OtherRanksAreQuietAndHaveFoldersOfTheirOwn) {
  ASSERT_EQ(Train("RANK=0 WORLD_SIZE=2").code, 0);
  const Outcome o = Train("RANK=1 WORLD_SIZE=2");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, "");
  EXPECT_TRUE(o.err.starts_with("[rank 1] onnxtrain: warning: WORLD_SIZE is 2")) << o.err;
  EXPECT_EQ(o.err.find("  loss "), std::string::npos) << o.err;
  const std::string log = ReadAll(Path("r/rank-1/rank-1.log"));
  EXPECT_NE(log.find("  loss "), std::string::npos) << log;
  EXPECT_NE(log.find("trained"), std::string::npos) << log;
  EXPECT_EQ(ReadAll(Path("r/rank-1/model.onnx")), ReadAll(Path("r/model.onnx")));
}

TEST_F(RankLog, ErrorsOfAnyRankArePrinted) {
  const Outcome o = Train("RANK=1 WORLD_SIZE=2", "--loss huberr");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("onnxtrain: error: "), std::string::npos) << o.err;
  EXPECT_NE(Train("RANK=2 WORLD_SIZE=2").err.find("RANK=2 is not below WORLD_SIZE=2"), std::string::npos);
  EXPECT_NE(Train("RANK=a WORLD_SIZE=2").err.find("RANK=a: expected a number"), std::string::npos);
}

TEST_F(RankLog, AProcessAloneIsAsWithoutALauncher) {
  const Outcome o = Train("RANK=0 WORLD_SIZE=1", "--quiet");
  EXPECT_EQ(o.code, 0);
  EXPECT_EQ(o.err, "");
  EXPECT_FALSE(Exists("r/rank-0.log"));
}

}  // namespace
}  // namespace onnxtrain
