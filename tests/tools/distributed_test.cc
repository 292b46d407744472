// Runs of several processes: the same model as of one, faults, logs.
#include <cstdlib>
#include <filesystem>
#include <random>

#include "frontend/base/strings.h"
#include "tests/media_files.h"
#include "tests/tools/run_of_ranks.h"

namespace onnxtrain {
namespace {

constexpr char kTrain[] = "--model m.onnx --data d.npz --eval-data e.npz --dropout 0.2 --batch-size 16 --epochs 3";
constexpr char kLong[] =
    "--model m.onnx --data d.npz --eval-data e.npz --eval-every 1000000 --epochs 1000000 --log-every 50";

class Distributed : public RunOfRanks {};

// A model whose weights are large enough to be divided.
tiny::Model WideMlp() {
  tiny::Model wide = tiny::Mlp(3);
  wide.weights[0] = {"w1", {4, 8192}, tiny::Uniform(4 * 8192, 0.05f, 1)};
  wide.weights[1] = {"b1", {8192}, std::vector<float>(8192, 0.1f)};
  wide.weights[2] = {"w2", {8192, 3}, tiny::Uniform(3 * 8192, 0.05f, 2)};
  return wide;
}

TEST_F(Distributed, LaunchTrainsTheModelOfOneProcess) {
  for (const char* optimizer : {"sgd --momentum 0.9 --lr 0.1", "adamw --max-grad-norm 0.5 --ema-decay 0.9"}) {
    const std::string flags = StrCat(kTrain, " --log-every 1 --overwrite --optimizer ", optimizer, " --out ");
    const Outcome one = RunProcess(flags + "one");
    ASSERT_EQ(one.code, 0) << one.err;
    for (const int ranks : {2, 4}) {
      const Outcome all = RunProcess(StrCat(Launch(ranks), flags, "all"));
      ASSERT_EQ(all.code, 0) << all.err;
      ExpectSameRun("one", "all");
      EXPECT_EQ(Summary("all")["world"], ranks);
      EXPECT_NEAR(Summary("all")["eval"]["loss"], Summary("one")["eval"]["loss"], 1e-5);
      EXPECT_EQ(Summary("all")["eval"]["accuracy"], Summary("one")["eval"]["accuracy"]);
    }
  }
}

// 7 micro-batches: no number of ranks divides them.
TEST_F(Distributed, DeterministicRunsHaveTheSameBitsOnAnyNumberOfRanks) {
  const std::string flags =
      "--model m.onnx --data d.npz --eval-data e.npz --dropout 0.2 --epochs 3 --deterministic --threads 1 "
      "--batch-size 14 --micro-batch-size 2 --lr-scheduler plateau --eval-every 2 --overwrite --out ";
  ASSERT_EQ(RunProcess(flags + "one").code, 0);
  for (const int ranks : {2, 3, 4}) {
    const Outcome all = RunProcess(StrCat(Launch(ranks), flags, "all"));
    ASSERT_EQ(all.code, 0) << all.err;
    EXPECT_EQ(Losses("all"), Losses("one")) << ranks << " ranks";
    EXPECT_TRUE(ReadAll(Path("all/model.onnx")) == ReadAll(Path("one/model.onnx"))) << ranks << " ranks";
  }
}

TEST_F(Distributed, DeterministicRunsGoOnWithTheSameBits) {
  const std::string flags = StrCat(kTrain, " --deterministic --threads 1 --micro-batch-size 4 --max-steps ");
  ASSERT_EQ(RunProcess(flags + "9 --out one").code, 0);
  ASSERT_EQ(RunProcess(StrCat(Launch(2), flags, "4 --out r")).code, 0);
  const Outcome resumed = RunProcess(StrCat(Launch(3), "--resume r --max-steps 9"));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(Summary("r")["resumed_from"], 4);
  EXPECT_TRUE(ReadAll(Path("r/model.onnx")) == ReadAll(Path("one/model.onnx")));
}

TEST_F(Distributed, DeterministicRunsNeedWhatDecidesTheOrder) {
  const std::string flags = "--model m.onnx --data d.npz --batch-size 16 --deterministic --out r";
  const auto error = [&](const std::string& more, int ranks = 1) {
    const Outcome o = RunProcess(StrCat(ranks > 1 ? Launch(ranks) : "", flags, more));
    EXPECT_EQ(o.code, 1) << o.err;
    return o.err;
  };
  EXPECT_NE(error(" --micro-batch-size 4").find("how many has each rank? (--threads N)"), std::string::npos);
  EXPECT_NE(error(" --threads 1").find("how large are they? (--micro-batch-size N)"), std::string::npos);
  EXPECT_NE(error(" --threads 1 --micro-batch-size 4 --comm-dtype bf16").find("(--comm-dtype f32)"), std::string::npos);
  EXPECT_NE(error(" --threads 1 --micro-batch-size 8", 3).find("which has 2 (--micro-batch-size, at most 5)"),
            std::string::npos);
}

// A rank sends (N - 1)/N of every gradient twice. The model is so wide that the padding of slices does not count.
TEST_F(Distributed, TrafficIsWhatThePlanSays) {
  tiny::Model wide = tiny::Mlp(3);
  wide.weights[0] = {"w1", {4, 4096}, tiny::Uniform(4 * 4096, 0.5f, 1)};
  wide.weights[1] = {"b1", {4096}, std::vector<float>(4096, 0.1f)};
  wide.weights[2] = {"w2", {4096, 3}, tiny::Uniform(3 * 4096, 0.5f, 2)};
  wide.Save(Path("wide.onnx"));
  for (const char* how :
       {"", " --comm-dtype bf16", " --shard optimizer", " --shard gradients", " --shard gradients --micro-batch-size 2",
        " --shard full", " --shard full --micro-batch-size 2", " --deterministic --threads 1 --micro-batch-size 4"}) {
    const Outcome o = RunProcess(
        StrCat(Launch(4), "--model wide.onnx --data d.npz --batch-size 16 --drop-last --overwrite --out r", how));
    ASSERT_EQ(o.code, 0) << o.err;
    const auto plan = RunProcess(StrCat("plan --model wide.onnx --batch-size 16 --world 4 --json", how));
    ASSERT_EQ(plan.code, 0) << plan.err;
    const auto communication = Summary("r")["communication"];
    const double sent = communication["sent_bytes"].get<double>() / communication["updates"].get<double>();
    EXPECT_NEAR(sent / nlohmann::json::parse(plan.out)["wire_bytes"].get<double>(), 1, 0.02) << how;
  }
  EXPECT_NE(
      RunProcess(StrCat(kTrain, " --comm-dtype bf16 --out r2")).err.find("--comm-dtype bf16: this process is no rank"),
      std::string::npos);
}

TEST_F(Distributed, RankZeroPrintsAndEachRankLogs) {
  const Outcome o = RunProcess(StrCat(Launch(2), kTrain, " --gradient-accumulation-steps 4 --out r"));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("trained"), std::string::npos) << o.out;
  EXPECT_EQ(o.err.find("[rank 1]"), std::string::npos) << o.err;
  EXPECT_EQ(ReadAll(Path("r/rank-0.log")), o.err);
  EXPECT_NE(ReadAll(Path("r/rank-1.log")).find("  loss "), std::string::npos);
  EXPECT_TRUE(Exists("r/model.onnx"));
  EXPECT_FALSE(Exists("r/rank-1"));
  const Outcome again = RunProcess(StrCat(Launch(2), kTrain, " --gradient-accumulation-steps 4 --overwrite --out r"));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(ReadAll(Path("r/rank-0.log")), again.err);
  const std::string log = ReadAll(Path("r/rank-1.log"));
  EXPECT_NE(log.find("memory: "), std::string::npos) << log;
  EXPECT_EQ(log.find("memory: "), log.rfind("memory: ")) << "of one run:\n" << log;
}

TEST_F(Distributed, RanksOfTorchrunMeet) {
  RunTwo(StrCat(kTrain, " --out r"), "");
  EXPECT_EQ(ExitCode(0), 0) << ReadAll(Path("o0"));
  EXPECT_EQ(ExitCode(1), 0) << ReadAll(Path("o1"));
  EXPECT_EQ(ReadAll(Path("o1")), "");
  EXPECT_EQ(Summary("r")["world"], 2);
}

TEST_F(Distributed, AnotherFlagIsNamed) {
  RunTwo(StrCat(kTrain, " --out r"), "", " --lr 0.5");
  EXPECT_EQ(ExitCode(0), 1) << ReadAll(Path("o0"));
  EXPECT_NE(ReadAll(Path("o0")).find("rank 1: --lr: this rank was started with 0.5, rank 0 with nothing"),
            std::string::npos)
      << ReadAll(Path("o0"));
  EXPECT_EQ(ExitCode(1), 1);
  EXPECT_FALSE(Exists("r/model.onnx"));
}

// The files of a rank may have other names, but not other samples.
TEST_F(Distributed, OtherSamplesAreNamed) {
  for (const char* name : {"d0.npz", "d1.npz", "e0.npz"})
    std::filesystem::copy(Path(name[0] == 'd' ? "d.npz" : "e.npz"), Path(name));
  EXPECT_TRUE(WriteNpz(Path("e1.npz"), Blobs(23, {.seed = 9})).ok());
  const std::string flags = "--model m.onnx --data d%R.npz --max-steps 3 --overwrite --out r";
  RunTwo(flags, "");
  EXPECT_EQ(ExitCode(0), 0) << ReadAll(Path("o0"));
  EXPECT_EQ(ExitCode(1), 0) << ReadAll(Path("o1"));
  RunTwo(flags + " --eval-data e%R.npz", "");
  EXPECT_EQ(ExitCode(0), 1) << ReadAll(Path("o0"));
  EXPECT_EQ(ExitCode(1), 1) << ReadAll(Path("o1"));
  EXPECT_NE(ReadAll(Path("o0")).find("rank 1: the samples of the evaluation"), std::string::npos)
      << ReadAll(Path("o0"));
  EXPECT_TRUE(WriteNpz(Path("d1.npz"), Blobs(50, {.seed = 9})).ok());
  RunTwo(flags, "");
  EXPECT_EQ(ExitCode(0), 1) << ReadAll(Path("o0"));
  EXPECT_NE(ReadAll(Path("o0")).find("rank 1: --data d1.npz: holds other samples"), std::string::npos)
      << ReadAll(Path("o0"));
}

// The others end by themselves, keep what was trained, and say who is missing.
TEST_F(Distributed, AKilledRankEndsAll) {
  RunTwo(StrCat(kLong, " --out r"), "kill -9 $P1");
  EXPECT_EQ(ExitCode(0), 2) << ReadAll(Path("o0"));
  EXPECT_NE(ReadAll(Path("o0")).find("rank 1 does not answer"), std::string::npos) << ReadAll(Path("o0"));
  EXPECT_GT(Summary("r")["steps"], 0);
  EXPECT_TRUE(Exists("r/checkpoints/latest"));

  std::filesystem::remove_all(Path("r"));
  RunTwo(StrCat(kLong, " --out r"), "kill -9 $P0");
  EXPECT_EQ(ExitCode(1), 2) << ReadAll(Path("o1"));
  EXPECT_NE(ReadAll(Path("o1")).find("rank 0 does not answer"), std::string::npos) << ReadAll(Path("o1"));
}

// A rank that is killed at any instant, from its start on, ends the other one; what is left is a run that goes on to
// the same end. ONNXTRAIN_LONG_TESTS=1 kills each rank at 20 instants instead of one, at all levels of sharding.
TEST_F(Distributed, ARankThatIsKilledAtAnyInstantCostsNoUpdate) {
  constexpr const char* kLevels[] = {"", " --shard optimizer", " --shard gradients", " --shard full"};
  const bool is_long = std::getenv("ONNXTRAIN_LONG_TESTS") != nullptr;
  WithDropout(WideMlp()).Save(Path("wide.onnx"));
  const std::string flags =
      "--model wide.onnx --data d.npz --eval-data e.npz --dropout 0.2 --batch-size 16 --max-steps 200 "
      "--eval-every 200 --save-every 20 --log-every 50 --lr 0.001 --comm-timeout 10s";
  ASSERT_EQ(RunProcess(flags + " --out undisturbed").code, 0);
  const double expected = Summary("undisturbed")["eval"]["loss"];
  std::mt19937 random(11);
  int cut_short = 0;
  for (int i = 0, runs = is_long ? 40 : 2; i < runs; ++i) {
    const int rank = i % 2;
    const std::string shard = kLevels[(i / 2 + i) % 4];
    const double seconds = 0.05 + 1.2 * std::generate_canonical<double, 32>(random);
    SCOPED_TRACE(StrCat("rank ", rank, " killed after ", seconds, " s", shard));
    std::filesystem::remove_all(Path("r"));
    const std::string resume = StrCat(flags, shard, " --out r --resume auto");
    RunTwo(resume, StrCat("sleep ", seconds, "; kill -9 $P", rank), "", true);
    const int killed = ExitCode(rank), other = ExitCode(1 - rank);
    EXPECT_TRUE(killed == 137 || killed == 0) << killed;  // 0: it was done
    // 1: the ranks had not met. 0: both were done, the killed one but for its exit.
    if (other == 0) {
      EXPECT_EQ(Summary("r")["steps"], 200);
    } else {
      EXPECT_TRUE(other == 2 || other == 1) << other << "\n" << ReadAll(Path("o0"));
    }
    cut_short += killed == 137;
    const Outcome resumed = RunProcess(StrCat(Launch(2), resume));
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(Summary("r")["steps"], 200);
    EXPECT_NEAR(Summary("r")["eval"]["loss"], expected, 1e-4);
  }
  EXPECT_GT(cut_short, 0);
}

// Rank 0 has the store in which the others look for the ones that are left.
TEST_F(Distributed, RankZeroThatHangsEndsAllWithinTheTimeOut) {
  RunTwo(StrCat(kLong, " --comm-timeout 12s --out r"),
         "kill -STOP $P0; s=$(date +%s); wait $P1; c=$?; echo $(($(date +%s) - s)) >seconds; kill -9 $P0; "
         "(exit $c) & P1=$!");
  EXPECT_EQ(ExitCode(1), 2) << ReadAll(Path("o1"));
  EXPECT_NE(ReadAll(Path("o1")).find("rank 0 does not answer"), std::string::npos) << ReadAll(Path("o1"));
  EXPECT_LT(std::atoi(ReadAll(Path("seconds")).c_str()), 20);
}

TEST_F(Distributed, AHangingRankEndsAllWithinTheTimeOut) {
  RunTwo(StrCat(kLong, " --comm-timeout 4s --out r"), "kill -STOP $P1; wait $P0; kill -9 $P1");
  EXPECT_EQ(ExitCode(0), 2) << ReadAll(Path("o0"));
  EXPECT_NE(ReadAll(Path("o0")).find("rank 1 does not answer"), std::string::npos) << ReadAll(Path("o0"));
}

// Each rank reads pictures of its own, which it cannot read any more from some update on.
TEST_F(Distributed, ARankThatCannotReadASampleEndsAllAtOnce) {
  tiny::Model m;
  m.input_shape = {-1, 3, 4, 4};
  m.nodes = {{"Flatten", {"x"}, {"flat"}}, {"MatMul", {"flat", "w"}, {"h"}}, {"MatMul", {"h", "v"}, {"y"}}};
  m.weights = {{"w", {48, 4}, tiny::Uniform(192, 0.1F, 1)}, {"v", {4, 2}, tiny::Uniform(8, 0.1F, 2)}};
  m.Save(Path("pictures.onnx"));
  for (const char* how : {"", " --shard gradients", " --shard full", " --tensor 2", " --pipeline 2"}) {
    SCOPED_TRACE(how);
    for (int i = 0; i < 64; ++i) {
      for (const char* folder : {"p0", "p1"}) {
        const std::string path = Path(StrCat(folder, "/", i % 2 == 0 ? "dark" : "light", "/", i, ".bmp"));
        std::filesystem::create_directories(std::filesystem::path(path).parent_path());
        WriteAll(path, Bmp(4, 4, [&](int, int) { return i % 2 == 0 ? 0x101010 : 0xe0e0e0; }));
      }
    }
    RunTwo(StrCat("--model pictures.onnx --data p%R --cache none --batch-size 16 --epochs 1000000 --log-every 50 "
                  "--overwrite --out r",
                  how),
           "for f in p1/*/*; do echo broken >$f; done");
    EXPECT_EQ(ExitCode(0), 1) << ReadAll(Path("o0"));
    EXPECT_EQ(ExitCode(1), 1) << ReadAll(Path("o1"));
    EXPECT_NE(ReadAll(Path("o0")).find("rank 1: p1/"), std::string::npos) << ReadAll(Path("o0"));
    EXPECT_TRUE(Exists("r/checkpoints/latest"));
  }
}

// The others learn how rank 0 ends after the last update.
TEST_F(Distributed, AllRanksEndWithTheExitCodeOfRankZero) {
  RunTwo(StrCat(kTrain, " --out r --require 'accuracy>=2'"), "");
  EXPECT_EQ(ExitCode(0), 3) << ReadAll(Path("o0"));
  EXPECT_EQ(ExitCode(1), 3) << ReadAll(Path("o1"));
  EXPECT_EQ(ReadAll(Path("o1")), "");

  const std::string diverges = " --optimizer sgd --lr 1e30 --max-steps 3 --max-grad-norm 0 --overwrite --out r";
  RunTwo(StrCat(kTrain, diverges), "");
  EXPECT_EQ(ExitCode(0), 2) << ReadAll(Path("o0"));
  EXPECT_EQ(ExitCode(1), 2) << ReadAll(Path("o1"));
  const Outcome launched = RunProcess(StrCat(Launch(3), kTrain, diverges));
  EXPECT_EQ(launched.code, 2);
  EXPECT_NE(launched.err.find("onnxtrain: launch: rank 0 ended with exit code 2"), std::string::npos) << launched.err;
}

// Rank 0 cannot open its files, after all have met.
TEST_F(Distributed, AllRanksEndWhereTheRunCannotBegin) {
  std::filesystem::create_directories(Path("r/config.flags/in the way"));
  RunTwo(StrCat(kTrain, " --overwrite --out r"), "");
  EXPECT_EQ(ExitCode(0), 1) << ReadAll(Path("o0"));
  EXPECT_EQ(ExitCode(1), 1) << ReadAll(Path("o1"));
  EXPECT_NE(ReadAll(Path("o0")).find("config.flags"), std::string::npos) << ReadAll(Path("o0"));
}

TEST_F(Distributed, TheSummaryTellsWhatCommunicationCosts) {
  const Outcome o = RunProcess(StrCat(Launch(2), kTrain, " --out r"));
  ASSERT_EQ(o.code, 0) << o.err;
  const auto communication = Summary("r")["communication"];
  EXPECT_EQ(communication["updates"], Summary("r")["steps"].get<int64_t>() - 1);
  EXPECT_GT(communication["seconds"], 0);
  EXPECT_LE(communication["exposed_seconds"], Summary("r")["seconds"]);
  EXPECT_GE(communication["gradient_bytes"], 4 * Summary("r")["trainable_parameters"].get<int64_t>());
  ASSERT_EQ(RunProcess(StrCat(kTrain, " --out one")).code, 0);
  EXPECT_EQ(Summary("one")["communication"], nullptr);
}

// Checkpoints are whole: the run goes on with any number of ranks, divided or not.
TEST_F(Distributed, DividedMomentsAreSavedAndTheRunGoesOn) {
  const std::string flags = StrCat(kTrain, " --lr 0.02 --max-steps "), divided = " --shard optimizer --save-every 5";
  ASSERT_EQ(RunProcess(flags + "11 --out one").code, 0);
  const Outcome whole = RunProcess(StrCat(Launch(2), flags, "11 --out whole"));
  ASSERT_EQ(whole.code, 0) << whole.err;
  const Outcome first = RunProcess(StrCat(Launch(2), flags, "6 --out r", divided));
  ASSERT_EQ(first.code, 0) << first.err;
  const auto moments = [&](const std::string& run) { return Summary(run)["planned_bytes"]["moments"].get<int64_t>(); };
  EXPECT_LT(moments("r"), moments("one"));
  EXPECT_EQ(moments("whole"), moments("one"));
  for (const char* how : {"launch --nproc 4 -- --shard optimizer", "launch --nproc 3 -- --shard none",
                          "launch --nproc 3 -- --shard gradients", "launch --nproc 4 -- --shard full", ""}) {
    std::filesystem::remove_all(Path("again"));
    std::filesystem::copy(Path("r"), Path("again"),
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
    const Outcome resumed = RunProcess(StrCat(how, " --resume again --max-steps 11"));
    ASSERT_EQ(resumed.code, 0) << how << "\n" << resumed.err;
    EXPECT_EQ(Summary("again")["resumed_from"], 6) << how;
    EXPECT_NEAR(Summary("again")["eval"]["loss"], Summary("one")["eval"]["loss"], 1e-5) << how;
  }
}

// What rank 1 had of the state is lost with it.
TEST_F(Distributed, DividedMomentsGoOnFromTheLastCheckpoint) {
  const std::string flags = " --shard optimizer --save-every 20 --out r";
  RunTwo(kLong + flags, "sleep 0.3; kill -9 $P1");
  EXPECT_EQ(ExitCode(0), 2) << ReadAll(Path("o0"));
  EXPECT_NE(ReadAll(Path("o0")).find("rank 1 does not answer"), std::string::npos) << ReadAll(Path("o0"));
  ASSERT_TRUE(Exists("r/checkpoints/latest"));
  const Outcome resumed = RunProcess(StrCat(Launch(2), "--resume r --eval-every 1ep --epochs 1000000 --max-time 1s"));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(Summary("r")["resumed_from"].get<int64_t>() % 20, 0);
  EXPECT_GT(Summary("r")["steps"], Summary("r")["resumed_from"]);
}

// The clock and the signals of rank 0 alone say when to save.
TEST_F(Distributed, DividedMomentsAreSavedByTimeAndOnDemand) {
  RunTwo(StrCat(kLong, " --shard optimizer --save-every 1s --keep-last 100 --out r"),
         "kill -USR1 $P0; sleep 2.5; kill -TERM $P1");
  EXPECT_EQ(ExitCode(0), 75) << ReadAll(Path("o0"));
  EXPECT_EQ(ExitCode(1), 75) << ReadAll(Path("o1"));
  int checkpoints = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Path("r/checkpoints")))
    checkpoints += entry.path().filename().string().starts_with("step-") && !entry.is_symlink();
  EXPECT_GE(checkpoints, 4) << "on demand, after one and two seconds, and at the end";
}

// The weights of one process, in its checkpoints and its model, for evaluations on the way and for the best model.
TEST_F(Distributed, DividedWeightsTrainTheModelOfOne) {
  WideMlp().Save(Path("wide.onnx"));
  const std::string flags =
      "--model wide.onnx --data d.npz --eval-data e.npz --batch-size 16 --micro-batch-size 4 --eval-every 4 "
      "--save-every 5 --seed 3 --lr "
      "0.001 --max-steps ";
  const Outcome one = RunProcess(StrCat(flags, "12 --out one"));
  ASSERT_EQ(one.code, 0) << one.err;
  const Outcome first = RunProcess(StrCat(Launch(2), flags, "7 --shard full --out r"));
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_LT(Summary("r")["planned_bytes"]["parameters"].get<double>(),
            0.7 * Summary("one")["planned_bytes"]["parameters"].get<double>());
  for (const char* how : {"launch --nproc 4 -- --shard full", "launch --nproc 3 -- --shard none", ""}) {
    std::filesystem::remove_all(Path("again"));
    std::filesystem::copy(Path("r"), Path("again"),
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
    const Outcome resumed = RunProcess(StrCat(how, " --resume again --max-steps 12"));
    ASSERT_EQ(resumed.code, 0) << how << "\n" << resumed.err;
    EXPECT_EQ(Summary("again")["resumed_from"], 7) << how;
    EXPECT_NEAR(Summary("again")["eval"]["loss"], Summary("one")["eval"]["loss"], 1e-5) << how;
    EXPECT_EQ(Summary("again")["eval"]["samples"], Summary("one")["eval"]["samples"]) << how;
  }
}

TEST_F(Distributed, WeightsOfRanksAreCompared) {
  const Outcome same = RunProcess(StrCat(Launch(2), kTrain, " --compare-weights-every 3 --out r"));
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_NE(RunProcess(StrCat(kTrain, " --compare-weights-every 3 --out r2"))
                .err.find("--compare-weights-every: this process"),
            std::string::npos);
}

TEST_F(Distributed, DividingMomentsNeedsRanksAndARuleForElements) {
  EXPECT_NE(
      RunProcess(StrCat(kTrain, " --shard optimizer --out r")).err.find("--shard optimizer: this process is no rank"),
      std::string::npos);
  const Outcome lamb = RunProcess(StrCat(Launch(2), kTrain, " --shard optimizer --optimizer lamb --out r"));
  EXPECT_EQ(lamb.code, 1);
  EXPECT_NE(lamb.err.find("--optimizer lamb reads whole weights"), std::string::npos) << lamb.err;
  const Outcome shown = RunProcess(StrCat(Launch(2), kTrain, " --shard gradients --histogram-every 5 --out r"));
  EXPECT_EQ(shown.code, 1);
  EXPECT_NE(shown.err.find("--histogram-every: needs whole gradients"), std::string::npos) << shown.err;
  const Outcome automatic = RunProcess(StrCat(Launch(2), kTrain, " --shard auto --optimizer lamb --out r"));
  EXPECT_EQ(automatic.code, 0) << automatic.err;
}

// One rank gets the signal: all stop after the same update. The run goes on with another number of ranks.
TEST_F(Distributed, ASignalToOneRankStopsAllAndTheRunGoesOn) {
  RunTwo(StrCat(kLong, " --out r"), "kill -TERM $P1");
  EXPECT_EQ(ExitCode(0), 75) << ReadAll(Path("o0"));
  EXPECT_EQ(ExitCode(1), 75) << ReadAll(Path("o1"));
  const int64_t steps = Summary("r")["steps"], more = steps + 40;
  const std::string limit = StrCat(" --max-steps ", more);
  const Outcome resumed = RunProcess(StrCat(Launch(4), "--resume r", limit));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(Summary("r")["steps"], more);
  ASSERT_EQ(RunProcess(StrCat(kLong, " --out undisturbed", limit)).code, 0);
  EXPECT_NEAR(Summary("r")["eval"]["loss"], Summary("undisturbed")["eval"]["loss"], 1e-4);
}

TEST_F(Distributed, SyncBatchNormHasTheStatisticsOfOneProcess) {
  const Outcome without = RunProcess("--model m.onnx --data d.npz --sync-batch-norm --out none");
  EXPECT_EQ(without.code, 1);
  EXPECT_NE(without.err.find("the model has no BatchNormalization nodes"), std::string::npos) << without.err;
  tiny::Model m = tiny::Mlp(3);
  m.nodes.insert(m.nodes.begin() + 2, {"BatchNormalization", {"h1", "scale", "shift", "mean", "var"}, {"n"}});
  m.nodes[3].inputs = {"n"};
  for (const auto& [name, value] : {std::pair("scale", 1.0F), {"shift", 0.0F}, {"mean", 0.0F}, {"var", 1.0F}})
    m.weights.push_back({name, {16}, std::vector<float>(16, value)});
  m.Save(Path("m.onnx"));
  const std::string train =
      "--model m.onnx --data d.npz --eval-data e.npz --batch-size 16 --epochs 3 --log-every 1 --lr 0.1 --optimizer "
      "sgd ";
  ASSERT_EQ(RunProcess(train + "--out one").code, 0);
  const Outcome two = RunProcess(StrCat(Launch(2), train, "--sync-batch-norm --out two"));
  ASSERT_EQ(two.code, 0) << two.err;
  ExpectSameRun("one", "two");
  ASSERT_EQ(RunProcess(StrCat(Launch(2), train, "--out apart")).code, 0);
  EXPECT_GT(std::abs(Losses("apart").back() - Losses("one").back()), 1e-4) << "statistics of half a batch";
}

TEST_F(Distributed, LaunchReportsTheRankThatFailedFirst) {
  const Outcome bad = RunProcess(Launch(2) + "--model none.onnx --data d.npz --out r");
  EXPECT_EQ(bad.code, 1);
  EXPECT_NE(bad.err.find("none.onnx"), std::string::npos) << bad.err;
  EXPECT_NE(bad.err.find("onnxtrain: launch: rank "), std::string::npos) << bad.err;
  EXPECT_NE(RunProcess("launch --nproc 0 -- --model m.onnx").err.find("expected a number from 1"), std::string::npos);
  EXPECT_NE(RunProcess("launch -- --model m.onnx").err.find("how many ranks"), std::string::npos);
  EXPECT_NE(RunProcess("launch --nproc 2 --model m.onnx").err.find("then -- and the flags"), std::string::npos);
  EXPECT_NE(RunProcess("launch --nproc 2 -- eval --model m.onnx").err.find("'eval' is not distributed"),
            std::string::npos);
  EXPECT_NE(RunProcess("launch --help").out.find("--nproc N"), std::string::npos);
}

TEST_F(Distributed, VariablesOfLaunchersAreChecked) {
  const std::string flags = "--model m.onnx --max-steps 2 --out r";
  EXPECT_NE(RunProcess(flags, "env RANK=2 WORLD_SIZE=2").err.find("RANK=2 is not below WORLD_SIZE=2"),
            std::string::npos);
  EXPECT_NE(RunProcess(flags, "env RANK=a WORLD_SIZE=2").err.find("RANK=a: expected a number"), std::string::npos);
  EXPECT_NE(RunProcess(flags, "env RANK=1 WORLD_SIZE=2").err.find("MASTER_ADDR is not set"), std::string::npos);
  const Outcome alone = RunProcess(flags + " --quiet", "env RANK=0 WORLD_SIZE=1");
  EXPECT_EQ(alone.code, 0) << alone.err;
  EXPECT_FALSE(Exists("r/rank-0.log"));
}

}  // namespace
}  // namespace onnxtrain
