// Runs of several processes that divide the layers of a model: the same model as of one, checkpoints, refusals.
#include <filesystem>

#include "frontend/base/strings.h"
#include "tests/tools/run_of_ranks.h"

namespace onnxtrain {
namespace {

constexpr char kTrain[] =
    "--model m.onnx --data d.npz --eval-data e.npz --dropout 0.2 --batch-size 16 --micro-batch-size 8 --epochs 3 "
    "--log-every 1 --overwrite ";

class TensorRun : public RunOfRanks {};

TEST_F(TensorRun, TrainsTheModelOfOneProcess) {
  for (const char* optimizer : {"sgd --momentum 0.9 --lr 0.1", "adamw --max-grad-norm 0.5 --ema-decay 0.9"}) {
    const std::string flags = StrCat(kTrain, " --optimizer ", optimizer, " --out ");
    const Outcome one = RunProcess(flags + "one");
    ASSERT_EQ(one.code, 0) << one.err;
    const Outcome all = RunProcess(StrCat("launch --nproc 2 -- ", flags, "all --tensor 2"));
    ASSERT_EQ(all.code, 0) << all.err;
    ExpectSameRun("one", "all");
    EXPECT_EQ(Summary("all")["world"], 2);
    EXPECT_EQ(Summary("all")["trainable_parameters"], Summary("one")["trainable_parameters"]);
    // The exported model is whole.
    const Outcome evaluated = RunProcess("eval --model all/model.onnx --data e.npz --json");
    ASSERT_EQ(evaluated.code, 0) << evaluated.err;
    EXPECT_NEAR(nlohmann::json::parse(evaluated.out)["loss"], Summary("one")["eval"]["loss"], 1e-5);
  }
}

TEST_F(TensorRun, CheckpointsLoadOnAnyNumberOfRanks) {
  const std::string flags = StrCat(kTrain, "--save-every 1ep --keep-last 9 --out ");
  ASSERT_EQ(RunProcess(flags + "one").code, 0);
  const Outcome begun = RunProcess(StrCat("launch --nproc 2 -- ", flags, "two --tensor 2 --max-steps 6"));
  ASSERT_EQ(begun.code, 0) << begun.err;
  std::filesystem::copy(Path("two"), Path("two_more"), std::filesystem::copy_options::recursive);
  const std::string goes_on = StrCat(std::string(flags, 0, flags.find("--overwrite")),
                                     "--save-every 1ep --keep-last 9 --max-steps 12 --resume auto --out ");
  const Outcome alone = RunProcess(goes_on + "two");
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_NEAR(Summary("two")["eval"]["loss"], Summary("one")["eval"]["loss"], 1e-5);
  const Outcome again = RunProcess(StrCat("launch --nproc 2 -- ", goes_on, "two_more --tensor 2"));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_NEAR(Summary("two_more")["eval"]["loss"], Summary("one")["eval"]["loss"], 1e-5);
}

TEST_F(TensorRun, RefusesWhatItCannot) {
  const auto expect = [&](const std::string& command, const std::string& message) {
    const Outcome refused = RunProcess(command);
    EXPECT_EQ(refused.code, 1) << command << "\n" << refused.err;
    EXPECT_NE(refused.err.find(message), std::string::npos) << command << "\n" << refused.err;
  };
  const std::string train = kTrain;
  expect(train + "--out r --tensor 2", "--tensor 2: this process is no rank of a distributed run");
  expect("launch --nproc 2 -- " + train + "--out r --tensor 3", "takes as many ranks as parts, there are 2");
  expect("plan --model m.onnx --tensor 7", "--tensor 7: no weight of the model has parts that 7 ranks could compute");
  for (const char* flag :
       {"--shard optimizer", "--comm-dtype bf16", "--deterministic --threads 1", "--auto", "--compare-weights-every 2",
        "--pipeline 2", "--histogram-every 1", "--sync-batch-norm", "--optimizer lamb"})
    expect(StrCat("launch --nproc 2 -- ", train, "--out r --tensor 2 ", flag), "--tensor");
}

TEST_F(TensorRun, PlansItsParts) {
  const Outcome planned = RunProcess("plan --model m.onnx --batch-size 16 --tensor 2 --json");
  ASSERT_EQ(planned.code, 0) << planned.err;
  const auto plan = nlohmann::json::parse(planned.out);
  EXPECT_EQ(plan["tensor"], 2);
  EXPECT_GT(plan["divided_weights"], 0);
  EXPECT_GT(plan["exchanges"], 0);
  EXPECT_GT(plan["wire_bytes"], 0);
  EXPECT_NE(RunProcess("plan --model m.onnx --batch-size 16 --tensor 2").out.find("memory     parameters "),
            std::string::npos);
}

}  // namespace
}  // namespace onnxtrain
