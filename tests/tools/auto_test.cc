// --auto and --lr-find: what they write, and that a resumed run keeps it.
#include <nlohmann/json.hpp>
#include <regex>

#include "frontend/base/strings.h"
#include "frontend/data/sources/numpy.h"
#include "tests/tools/blobs.h"
#include "tests/tools/first_cpu.h"
#include "tests/tools/run_scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

class AutoRun : public RunScratch {
 protected:
  AutoRun() {
    tiny::Mlp(3).Save(Path("m.onnx"));
    EXPECT_TRUE(WriteNpz(Path("d.npz"), Blobs(96)).ok());
  }
};

TEST_F(AutoRun, LrFindWritesItsCurve) {
  const Outcome o = Run("--model m.onnx --data d.npz --epochs 40 --lr-find --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  const Json found = Json::parse(ReadAll(Path("r/lr_find.json")));
  ASSERT_TRUE(found["lr"].is_number()) << found["why"];
  EXPECT_GT(found["points"].size(), 20);
  EXPECT_EQ(Summary("r")["lr"], found["lr"]);
  EXPECT_NE(o.err.find("by trials of 30 updates"), std::string::npos) << o.err;
  const std::string report = ReadAll(Path("r/report.html")), flags = ReadAll(Path("r/config.flags"));
  EXPECT_NE(report.find("loss by learning rate</text>"), std::string::npos);
  EXPECT_NE(flags.find("--lr=" + found["lr"].dump() + "\n"), std::string::npos) << flags;
  EXPECT_EQ(flags.find("lr-find"), std::string::npos);
}

TEST_F(AutoRun, LrFindHasNoTrialsInAShortRun) {
  const Outcome o = Run("--model m.onnx --data d.npz --max-steps 3 --lr-find --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("; no trials: a quarter of 3 updates is fewer than 20"), std::string::npos) << o.err;
  EXPECT_FALSE(Json::parse(ReadAll(Path("r/lr_find.json"))).contains("trials"));
}

TEST_F(AutoRun, AResumedRunKeepsWhatWasChosen) {
  const std::string line = "--model m.onnx --data d.npz --auto --lr-find --resume auto --out r --quiet ";
  ASSERT_EQ(Run(line + "--max-steps 4").code, 0);
  const Json chosen = Summary("r");
  ASSERT_EQ(chosen["auto"].size(), 6);
  for (const Json& choice : chosen["auto"]) EXPECT_NE(choice["why"], "") << choice;
  const Outcome o = Run(line + "--max-steps 6");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("--lr-find: the run keeps what was chosen when it began"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("--auto: the run keeps what was chosen when it began"), std::string::npos) << o.err;
  const Json now = Summary("r");
  EXPECT_EQ(now["resumed_from"], 4);
  EXPECT_FALSE(now.contains("auto"));
  for (const char* key : {"lr", "micro_batch", "precision"}) EXPECT_EQ(now[key], chosen[key]) << key;
  EXPECT_NE(ReadAll(Path("r/report.html")).find("loss by learning rate</text>"), std::string::npos);
}

TEST_F(AutoRun, PrintsATableOfChoices) {
  const Outcome o = Run("--model m.onnx --data d.npz --auto --threads 1 --max-steps 2 --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  for (const char* field : {"--mixed-precision ", "--micro-batch-size ", "--gradient-checkpointing ", "--num-workers ",
                            "--threads ", "--lr-scale "})
    EXPECT_NE(o.err.find(field), std::string::npos) << field << o.err;
  EXPECT_NE(o.err.find("--threads                 1      as given"), std::string::npos) << o.err;
}

TEST_F(AutoRun, OneCpuIsAllThatThereIs) {
  const Outcome o = RunProcess("--model m.onnx --data d.npz --auto --max-steps 2 --out r",
                               StrCat("env -u OMP_NUM_THREADS taskset -c ", FirstCpu()));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(std::regex_search(o.err, std::regex("--threads +1 +all that the process may use\n"))) << o.err;
}

}  // namespace
}  // namespace onnxtrain
