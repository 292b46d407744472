// A run that is interrupted anywhere and continued is the run that was not: the same weights, losses and metrics, bit
// for bit.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "frontend/base/status.h"
#include "frontend/data/sources/numpy.h"
#include "optim/record/checkpoint/checkpoint_folder.h"
#include "tests/tools/blobs.h"
#include "tests/tools/run_scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// ONNXTRAIN_LONG_TESTS=1 interrupts at every place instead of some.
bool IsLong() { return std::getenv("ONNXTRAIN_LONG_TESTS") != nullptr; }

// x[batch,4] → MatMul → BatchNormalization → Relu → Dropout → MatMul: statistics, random masks and two groups.
tiny::Model Network() {
  tiny::Model m;
  m.nodes = {{"MatMul", {"x", "w1"}, {"h0"}}, {"BatchNormalization", {"h0", "scale", "bias", "mean", "var"}, {"h1"}},
             {"Relu", {"h1"}, {"h2"}},        {"Dropout", {"h2"}, {"h"}},
             {"MatMul", {"h", "w2"}, {"o"}},  {"Add", {"o", "b2"}, {"y"}}};
  m.weights = {{"w1", {4, 16}, tiny::Uniform(64, 0.5f, 1)}, {"scale", {16}, std::vector<float>(16, 1)},
               {"bias", {16}, tiny::Uniform(16, 0.1f, 2)},  {"mean", {16}, std::vector<float>(16, 0)},
               {"var", {16}, std::vector<float>(16, 1)},    {"w2", {16, 3}, tiny::Uniform(48, 0.5f, 3)},
               {"b2", {3}, std::vector<float>(3, 0.1f)}};
  return m;
}

NamedArrays Samples(int64_t n) { return Blobs(n, {.noise = 0.9f, .distance = 1}); }

class Resume : public RunScratch {
 protected:
  Resume() {
    Network().Save(Path("m.onnx"));
    EXPECT_TRUE(WriteNpz(Path("d.npz"), Samples(50)).ok());  // 38 to train on: batches of 10, 10, 10 and 8
  }

  // Two epochs, eight updates.
  static constexpr int64_t kSteps = 8;
  static constexpr const char* kBase =
      "--model m.onnx --data d.npz --eval-split last:0.24 --batch-size 10 --dropout 0.3 --log-every 3 --threads 1 "
      "--quiet ";
  static constexpr const char* kTwoEpochs = "--epochs 2 --eval-every 3 ";

  Outcome Train(const std::string& flags, const std::string& prefix = "") const {
    return RunProcess(StrCat(kBase, flags), StrCat("timeout -s KILL 120 ", prefix));
  }

  // Everything that must not depend on interruptions.
  struct Traces {
    std::string model;
    std::vector<std::string> metrics;

    bool operator==(const Traces&) const = default;
  };
  Traces Read(const std::string& folder) const {
    Traces traces{.model = ReadAll(Path(folder + "/model.onnx"))};
    for (Json& event : Metrics(folder)) {
      for (const char* timing : {"samples_per_second", "data_wait", "busy_cpus", "machine_busy_cpus", "resident_bytes",
                                 "disk_read_rate", "disk_write_rate", "seconds"})
        event.erase(timing);
      traces.metrics.push_back(event.dump());
    }
    return traces;
  }

  // Makes folder `to` what `from` was when update `step` had been saved and the process was killed.
  void CutAt(const std::string& from, const std::string& to, int64_t step) const {
    fs::remove_all(Path(to));
    fs::copy(Path(from), Path(to), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    for (const char* name : {"model.onnx", "summary.json"}) fs::remove(Path(to + "/" + name));
    for (const int64_t later : ListCheckpoints(Path(to + "/checkpoints"))) {
      if (later > step) fs::remove_all(Path(StrCat(to, "/checkpoints/", CheckpointName(later))));
    }
  }

  // Interrupts after each of `steps` and compares with the whole run.
  void Check(const std::string& flags, const std::vector<int64_t>& steps, const std::string& resume_flags = "") {
    fs::remove_all(Path("whole"));
    const bool own_length = flags.find("--epochs") != std::string::npos;
    const Outcome whole =
        Train(StrCat(own_length ? "" : kTwoEpochs, flags, " --save-every 1 --keep-last 99 --out whole"));
    ASSERT_EQ(whole.code, 0) << flags << "\n" << whole.err;
    const Traces expected = Read("whole");
    ASSERT_FALSE(expected.model.empty());
    for (const int64_t step : steps) {
      CutAt("whole", "cut", step);
      const Outcome resumed = RunProcess(StrCat("--resume cut --quiet ", resume_flags), "timeout -s KILL 120");
      ASSERT_EQ(resumed.code, 0) << flags << " after update " << step << "\n" << resumed.err;
      EXPECT_TRUE(Read("cut") == expected) << flags << " after update " << step;
      EXPECT_EQ(Summary("cut")["resumed_from"], step);
      EXPECT_EQ(Summary("cut")["eval"], Summary("whole")["eval"]);
      EXPECT_EQ(Summary("cut")["final_loss"], Summary("whole")["final_loss"]);
    }
  }

  static std::vector<int64_t> Every() { return {1, 2, 3, 4, 5, 6, 7}; }
};

TEST_F(Resume, AtEveryUpdate) { Check("--backend cpu", Every()); }

TEST_F(Resume, AtEveryUpdateOnTorch) { Check("--backend torch", IsLong() ? Every() : std::vector<int64_t>{3, 4, 6}); }

TEST_F(Resume, FromALinkGoesOnInTheFolderOfItsRun) {
  ASSERT_EQ(Train(StrCat(kTwoEpochs, "--save-every 1 --keep-last 99 --out whole")).code, 0);
  CutAt("whole", "cut", 6);
  fs::remove(Path("cut/checkpoints/latest"));
  fs::create_symlink(CheckpointName(6), Path("cut/checkpoints/latest"));
  const Outcome resumed = RunProcess("--resume cut/checkpoints/latest --quiet", "timeout -s KILL 120");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_TRUE(Read("cut") == Read("whole"));
}

// At a rate so high that the last evaluation is not the best one.
// The loss of every evaluation is the best so far: a run that goes on knows those of the process before it.
TEST_F(Resume, KeepsTheBestCheckpointsOfTheProcessBefore) {
  const std::string best = "--eval-every 1 --lr 0.01 --keep-last 1 --keep-best 4 --save-every 100 ";
  const auto kept = [&](const std::string& folder) { return ListCheckpoints(Path(folder + "/checkpoints")); };
  const Outcome whole = Train(best + "--max-steps 7 --out whole");
  ASSERT_EQ(whole.code, 0) << whole.err;
  ASSERT_EQ(kept("whole"), (std::vector<int64_t>{4, 5, 6, 7}));
  ASSERT_EQ(Train(best + "--max-steps 5 --out cut").code, 0);
  ASSERT_EQ(kept("cut"), (std::vector<int64_t>{2, 3, 4, 5}));
  ASSERT_EQ(RunProcess("--resume cut --quiet --max-steps 7").code, 0);
  EXPECT_EQ(kept("cut"), kept("whole"));
  EXPECT_EQ(fs::read_symlink(Path("cut/checkpoints/best")), CheckpointName(7));
  // Checkpoints that the continued run has not made do not count.
  ASSERT_EQ(RunProcess("--resume cut/checkpoints/step-00000005 --quiet --max-steps 6").code, 0);
  EXPECT_EQ(kept("cut"), (std::vector<int64_t>{4, 5, 6}));
}

TEST_F(Resume, LeavesAveragedWeightsWhereTheModelWouldHaveThem) {
  const std::string flags = "--epochs 1000000 --eval-every 1000000ep --ema-decay 0.9999 --overwrite --out r";
  for (const char* delay : {"0.7", "3", "12"}) {  // a slow machine may not have begun
    Train(flags, StrCat("timeout -s TERM ", delay, " "));
    if (Exists("r/model.unfinished.onnx")) break;
  }
  const Outcome exported = RunProcess("export --model m.onnx --checkpoint r --out averages.onnx");
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_EQ(ReadAll(Path("r/model.unfinished.onnx")), ReadAll(Path("averages.onnx")));
}

TEST_F(Resume, ExportsTheLastWeightsIfTheBestAreLost) {
  const Outcome whole = Train(
      StrCat(kTwoEpochs, "--optimizer sgd --lr 30 --export-weights best --save-every 1 --keep-last 99 --out whole"));
  ASSERT_EQ(whole.code, 0) << whole.err;
  const Json exported = Summary("whole")["exported"];
  ASSERT_EQ(exported["metric"], "best");
  const int64_t best = exported["step"];
  ASSERT_LT(best, 7);
  CutAt("whole", "cut", 7);
  fs::remove_all(Path(StrCat("cut/checkpoints/", CheckpointName(best))));
  const Outcome resumed = RunProcess("--resume cut --quiet", "timeout -s KILL 120");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("the best weights are lost"), std::string::npos) << resumed.err;
  EXPECT_EQ(Summary("cut")["exported"]["metric"], "last");
  EXPECT_EQ(Summary("cut")["exported"]["step"], kSteps);
}

TEST_F(Resume, WithAccumulationAveragesAndOtherWorkers) {
  Check("--gradient-accumulation-steps 2 --ema-decay 0.9 --num-workers 1", {1, 3, 4, 7}, "--num-workers 3");
}

TEST_F(Resume, WithCompressedCheckpoints) {
  Check("--checkpoint-compression zstd", {1, 4, 7});
  EXPECT_TRUE(Exists("whole/checkpoints/latest/model.safetensors.zst"));
  ASSERT_EQ(RunProcess("export --model m.onnx --checkpoint whole --out last.onnx").code, 0);
  EXPECT_EQ(ReadAll(Path("last.onnx")), ReadAll(Path("whole/model.onnx")));
  const Outcome more = RunProcess("--model m.onnx --data d.npz --init-from whole --max-steps 1 --out s --quiet");
  EXPECT_EQ(more.code, 0) << more.err;
}

TEST_F(Resume, WithEveryOptimizer) {
  for (const char* rule : {"sgd", "sgd --momentum 0.9", "adam", "adamw --weight-decay 0.1", "rmsprop",
                           "rmsprop --momentum 0.5", "adagrad", "lion", "lamb", "lars", "adafactor"})
    Check(StrCat("--optimizer ", rule), IsLong() ? Every() : std::vector<int64_t>{3, 5});
}

TEST_F(Resume, WithEverySchedule) {
  for (const char* schedule : {"linear --warmup 2", "cosine", "cosine_restarts", "polynomial", "step:size=3,gamma=0.5",
                               "multistep:at=2/5,gamma=0.5", "exponential", "inverse_sqrt --warmup 2",
                               "plateau:patience=0,threshold=0.5", "one_cycle", "wsd", "wsd_cosine", "wsd_sqrt"})
    Check(StrCat("--lr 1e-2 --lr-scheduler ", schedule), IsLong() ? Every() : std::vector<int64_t>{5});
}

TEST_F(Resume, WithMixedPrecision) {
  Check("--mixed-precision bf16", {3});
  Check("--mixed-precision fp16 --loss-scale dynamic", {2, 5});
}

TEST_F(Resume, WithEarlyStoppingAndTheBestWeights) {
  Check("--export-weights best --keep-best 2 --metrics f1 --monitor f1:max --lr 0.05", {2, 5, 7});
  Check("--early-stopping-patience 1 --monitor loss:min --eval-every 1 --lr 3 --epochs 9", {1});
}

TEST_F(Resume, AfterASignalInAnyPhase) {
  const std::string flags = "--epochs 5000 --eval-every 400ep --save-every end --out ";
  ASSERT_EQ(Train(flags + "whole").code, 0);
  const Traces expected = Read("whole");
  for (const char* delay : {"0.1", "0.3", "0.5"}) {
    fs::remove_all(Path("cut"));
    for (int times = 0; !Exists("cut/model.onnx"); ++times) {
      const bool last = times > 3;  // a slow machine may not get far in that time
      const Outcome o = Train(flags + "cut --resume auto", last ? "" : StrCat("timeout -s TERM ", delay));
      ASSERT_TRUE(o.code == 0 || o.code == 124 || o.code == 75) << o.err;  // `timeout` says 124 for what it stopped
      if (!Exists("cut/summary.json") || Exists("cut/model.onnx") || Summary("cut")["steps"] == 0) continue;
      EXPECT_EQ(Summary("cut")["stop_reason"], "signal");
      EXPECT_EQ(Summary("cut")["resumable"], true);
      EXPECT_TRUE(Exists("cut/model.unfinished.onnx"));
    }
    EXPECT_TRUE(Read("cut") == expected) << delay;
    EXPECT_FALSE(Exists("cut/model.unfinished.onnx"));
  }
}

// Before main.
TEST_F(Resume, AfterASignalAtOnce) {
  const auto train = [&](int signal) {
    return Train("--epochs 2 --out r --resume auto", WithFaultShim("FAULT_SIGNAL=", signal, " "));
  };
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const Outcome o = train(signal);
    EXPECT_EQ(o.code, 75) << signal << o.err;
    EXPECT_FALSE(Exists("r/model.onnx"));
  }
  const Outcome saves = train(SIGUSR1);
  EXPECT_EQ(saves.code, 0) << saves.err;
  EXPECT_TRUE(Exists("r/model.onnx"));
}

TEST_F(Resume, SavesOnRequestAndGoesOn) {
  const Outcome o =
      RunProcess(StrCat(kBase, "--epochs 10000000 --max-time 4 --eval-every 1000ep --save-every end --out r & pid=$!; ",
                        "sleep 1; kill -USR1 $pid; sleep 1; cd ", folder_, "; ls r/checkpoints > listed; wait $pid"));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(Summary("r")["stop_reason"], "max_time");
  EXPECT_NE(ReadAll(Path("listed")).find("step-"), std::string::npos) << ReadAll(Path("listed"));
}

TEST_F(Resume, KilledAtEveryCallOfASave) {
  const std::string flags = "--save-every 2 --keep-last 1 --max-steps 4 --out ";
  const std::string shim = WithFaultShim("");
  ASSERT_EQ(Train(flags + "whole", StrCat(shim, "FAULT_COUNT=", Path("count"))).code, 0);
  const Traces expected = Read("whole");
  const int calls = std::atoi(ReadAll(Path("count")).c_str());
  ASSERT_GT(calls, 40);
  for (int call = 1; call <= calls; call += IsLong() ? 1 : 7) {
    fs::remove_all(Path("cut"));
    const Outcome killed = Train(flags + "cut", StrCat(shim, "FAULT=kill FAULT_AT=", call));
    ASSERT_EQ(killed.code, 137) << call << killed.err;
    const Outcome resumed = Train(flags + "cut --resume auto");
    ASSERT_EQ(resumed.code, 0) << call << "\n" << resumed.err;
    EXPECT_TRUE(Read("cut") == expected) << "killed in front of call " << call << " of " << calls;
    for (const auto& entry : fs::directory_iterator(Path("cut/checkpoints")))
      EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp-")) << call << " " << entry.path();
  }
}

// Two checkpoints, whether the last update is a multiple of the interval or not.
TEST_F(Resume, WritesTheCheckpointOfTheEndOnce) {
  const auto calls = [&](const std::string& every) {
    const std::string shim = WithFaultShim("FAULT_COUNT=", Path("count"), " ");
    EXPECT_EQ(Train(StrCat("--max-steps 4 --save-every ", every, " --out r", every), shim).code, 0);
    return ReadAll(Path("count"));
  };
  EXPECT_EQ(calls("2"), calls("3"));
}

TEST_F(Resume, KilledAtRandomInstants) {
  const std::string flags = "--epochs 2500 --eval-every 400ep --save-every 40 --out ";
  ASSERT_EQ(Train(flags + "whole").code, 0);
  const Traces expected = Read("whole");
  const int instants = IsLong() ? 200 : 10;
  fs::remove_all(Path("cut"));
  for (int instant = 0, finished = 0; instant < instants; ++instant) {
    const int milliseconds = 30 + (instant * 7919) % 470;
    const Outcome o = Train(flags + "cut --resume auto", StrCat("timeout -s KILL ", milliseconds / 1000.0));
    ASSERT_TRUE(o.code == 0 || o.code == 137) << o.err;
    if (o.code != 0) continue;
    EXPECT_TRUE(Read("cut") == expected) << ++finished;
    fs::remove_all(Path("cut"));
  }
  ASSERT_EQ(Train(flags + "cut --resume auto").code, 0);
  EXPECT_TRUE(Read("cut") == expected);
}

TEST_F(Resume, EveryErrorOfTheDiskLeavesAGoodCheckpoint) {
  const std::string flags = "--save-every 2 --keep-last 2 --max-steps 6 --out ";
  const std::string shim = WithFaultShim("");
  ASSERT_EQ(Train(flags + "whole", StrCat(shim, "FAULT_COUNT=", Path("count"))).code, 0);
  const Traces expected = Read("whole");
  const int calls = std::atoi(ReadAll(Path("count")).c_str());
  constexpr int kErrors[] = {ENOSPC, EIO, EDQUOT, EROFS};
  for (int call = 1; call <= calls; call += IsLong() ? 1 : 9) {
    fs::remove_all(Path("cut"));
    const Outcome o = Train(flags + "cut", StrCat(shim, "FAULT=", kErrors[call % 4], " FAULT_AT=", call));
    ASSERT_EQ(o.code, 0) << call << "\n" << o.err;
    EXPECT_TRUE(Read("cut") == expected) << call;
    std::vector<std::string> skipped;
    const auto newest = OpenNewestCheckpoint(Path("cut/checkpoints"), &skipped);
    ASSERT_TRUE(newest.ok()) << call << newest.status();
    EXPECT_GE(newest->step, 4) << call;
    EXPECT_TRUE(skipped.empty()) << call << skipped[0];
  }
}

TEST_F(Resume, ShortWritesAndInterruptedCallsAreNoErrors) {
  const Outcome o = Train("--save-every 2 --max-steps 4 --out r", WithFaultShim("FAULT=", EINTR, " FAULT_AT=4 "));
  EXPECT_EQ(o.code, 0);
  EXPECT_EQ(o.err, "");
}

// Weights of 5 MiB: their file is written in several chunks, and copied by both threads.
tiny::Model WideModel() {
  tiny::Model wide = tiny::Mlp(3);
  wide.nodes = {{"MatMul", {"x", "w1"}, {"h0"}}, {"Relu", {"h0"}, {"h"}}, {"MatMul", {"h", "w2"}, {"y"}}};
  wide.weights = {{"w1", {4, 200'000}, tiny::Uniform(800'000, 0.5f, 1)},
                  {"w2", {200'000, 3}, tiny::Uniform(600'000, 0.01f, 2)}};
  return wide;
}

TEST_F(Resume, LargeStatesAreWholeOnEveryFileSystem) {
  WideModel().Save(Path("wide.onnx"));
  const int direct = open(Path("direct").c_str(), O_WRONLY | O_CREAT | O_DIRECT, 0600);
  const bool is_supported = direct >= 0 && close(direct) == 0;
  for (const std::string& shim : {std::string(), WithFaultShim("FAULT_DIRECT=refused ")}) {
    const std::string run = shim.empty() ? "a" : "b";
    const Outcome o = RunProcess(
        StrCat("--model wide.onnx --data d.npz --max-steps 3 --save-every 2 --threads 2 --quiet --out ", run), shim);
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.err, "");
    ASSERT_EQ(RunProcess(StrCat("export --model wide.onnx --checkpoint ", run, " --out last.onnx")).code, 0);
    EXPECT_TRUE(ReadAll(Path("last.onnx")) == ReadAll(Path(run + "/model.onnx")));
  }
  EXPECT_TRUE(ReadAll(Path("a/model.onnx")) == ReadAll(Path("b/model.onnx")));
  EXPECT_EQ(std::atoi(ReadAll(Path("refused")).c_str()) > 0, is_supported);
}

TEST_F(Resume, ADiskWithoutRoomIsRefusedBeforeTheFirstStep) {
  const Outcome o = Train("--epochs 2 --out r", WithFaultShim("FAULT_FREE=0"));
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("a checkpoint takes"), std::string::npos) << o.err;
  EXPECT_FALSE(Exists("r/model.onnx"));
}

// The newest checkpoint stays while the model is written.
TEST_F(Resume, ADiskWithoutRoomForCheckpointAndModelIsRefused) {
  WideModel().Save(Path("wide.onnx"));
  const auto train = [&](int mebibytes) {
    return RunProcess("--model wide.onnx --data d.npz --max-steps 1 --threads 1 --quiet --overwrite --out r",
                      WithFaultShim("FAULT_ROOM=", mebibytes << 20, " "));
  };
  const Outcome full = train(18);  // weights and moments take 16.0 MiB, the model 5.3
  EXPECT_EQ(full.code, 1) << full.err;
  EXPECT_NE(full.err.find("a checkpoint and the model take 21.4 MiB"), std::string::npos) << full.err;
  EXPECT_EQ(train(24).code, 0);
}

TEST_F(Resume, AFolderThatIsMovedOrRemovedMeanwhileGetsTheModel) {
  const auto train = [&](const std::string& change) {
    return RunProcess(StrCat(kBase,
                             "--epochs 10000000 --max-time 3 --eval-every 1000ep --save-every 1000ep --keep-last 2 ",
                             "--out r & pid=$!; cd ", folder_, "; until [ -s r/metrics.jsonl ]; do sleep 0.1; done; ",
                             change, "; wait $pid"));
  };
  const Outcome moved = train("mv r s");
  EXPECT_EQ(moved.code, 0) << moved.err;
  EXPECT_NE(Summary("s")["warnings"].dump().find("was moved to "), std::string::npos) << Summary("s")["warnings"];
  EXPECT_TRUE(Exists("s/model.onnx"));
  EXPECT_TRUE(Exists("s/summary.json"));
  EXPECT_FALSE(Exists("r"));
  EXPECT_EQ(ListCheckpoints(Path("s/checkpoints")).size(), 2);
  const Outcome removed = train("mv r t; rm -r t");
  EXPECT_EQ(removed.code, 0) << removed.err;
  const std::string warnings = Summary("r")["warnings"].dump();
  EXPECT_NE(warnings.find("was removed while it was written to"), std::string::npos) << warnings;
  for (const char* file : {"model.onnx", "summary.json", "preprocess.json", "config.flags"})
    EXPECT_TRUE(Exists(StrCat("r/", file))) << file;
}

TEST_F(Resume, OlderCheckpointsMakeRoomOnAFullDisk) {
  ASSERT_EQ(Train("--epochs 2 --save-every 1 --out whole").code, 0);
  uintmax_t one = 0;
  for (const auto& file : fs::recursive_directory_iterator(Path("whole/checkpoints/step-00000008")))
    one += file.is_regular_file() ? file.file_size() : 0;
  const auto train = [&](double checkpoints) {
    return Train(
        "--epochs 2 --save-every 1 --keep-last 5 --overwrite --out r",
        WithFaultShim("FAULT_ROOM=", static_cast<int64_t>(checkpoints * static_cast<double>(one)) + (20 << 10), " "));
  };
  const Outcome full = train(2.5);
  EXPECT_EQ(full.code, 0) << full.err;
  EXPECT_NE(full.err.find("the disk was full: "), std::string::npos) << full.err;
  EXPECT_EQ(full.err.find("was not saved"), std::string::npos) << full.err;
  EXPECT_TRUE(ReadAll(Path("r/model.onnx")) == ReadAll(Path("whole/model.onnx")));
  const std::vector<int64_t> kept = ListCheckpoints(Path("r/checkpoints"));
  EXPECT_LT(kept.size(), 5u);
  EXPECT_EQ(kept.back(), 8);
  // No room for two: the first one stays, and is whole.
  const Outcome few = train(1);
  EXPECT_NE(few.err.find("was not saved"), std::string::npos) << few.err;
  std::vector<std::string> skipped;
  EXPECT_TRUE(OpenNewestCheckpoint(Path("r/checkpoints"), &skipped).ok());
  EXPECT_TRUE(skipped.empty());
}

TEST_F(Resume, AutoStartsGoesOnOrHasNothingToDo) {
  EXPECT_EQ(Train("--epochs 2 --out r --resume auto").code, 0);
  const Traces first = Read("r");
  const Outcome again = Train("--epochs 2 --out r --resume auto");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.out.find("nothing is left to do"), std::string::npos) << again.out;
  EXPECT_TRUE(Read("r") == first);
  EXPECT_EQ(Train("--epochs 2 --out r --resume auto --require 'loss<=1e-9'").code, 3);
  const Outcome more = Train("--out r --resume auto --epochs 3");
  EXPECT_EQ(more.code, 0) << more.err;
  EXPECT_EQ(Summary("r")["steps"], 12);
  EXPECT_EQ(Summary("r")["resumed_from"], kSteps);
}

TEST_F(Resume, BothLimitsHold) {
  ASSERT_EQ(Train("--epochs 2 --out given").code, 0);
  const Outcome limited = Run("--resume given --max-steps 1000 --quiet");
  ASSERT_EQ(limited.code, 0) << limited.err;
  EXPECT_EQ(Summary("given")["steps"], kSteps);
  EXPECT_EQ(Summary("given")["stop_reason"], "epochs");
  EXPECT_NE(limited.err.find("--epochs 2: was given when the run began, and holds too"), std::string::npos);
  ASSERT_EQ(Run("--resume given --max-steps 10 --epochs 3 --quiet").code, 0);
  EXPECT_EQ(Summary("given")["steps"], 10);
  EXPECT_EQ(Summary("given")["stop_reason"], "max_steps");
  ASSERT_EQ(Run("--resume given --max-steps 1000 --quiet").code, 0);  // to the third epoch
  EXPECT_EQ(Summary("given")["steps"], 12);

  ASSERT_EQ(Train("--out by_default").code, 0);  // three epochs, which nobody asked for
  EXPECT_EQ(Summary("by_default")["steps"], 12);
  EXPECT_EQ(ReadAll(Path("by_default/config.flags")).find("--epochs"), std::string::npos);
  ASSERT_EQ(Run("--resume by_default --max-steps 17 --quiet").code, 0);
  EXPECT_EQ(Summary("by_default")["steps"], 17);
  ASSERT_EQ(Run("--resume by_default --epochs 9 --quiet").code, 0);  // which the 17 updates still end
  EXPECT_EQ(Summary("by_default")["steps"], 17);
}

TEST_F(Resume, RefusesAnotherRun) {
  ASSERT_EQ(Train("--out r --max-steps 5").code, 0);
  struct Row {
    std::string flags, problem;
  };
  EXPECT_TRUE(WriteNpz(Path("other.npz"), Samples(51)).ok());
  tiny::Model other = Network();
  other.weights[0].values[0] += 1;
  other.Save(Path("other.onnx"));
  other.nodes.erase(other.nodes.begin() + 3);  // Dropout, which the run's flags name
  other.nodes[3].inputs[0] = "h2";
  other.Save(Path("without.onnx"));
  NamedArrays changed = Samples(50);
  changed[0].second.Set(4 * 23, changed[0].second.At(4 * 23) + 1);
  EXPECT_TRUE(WriteNpz(Path("changed.npz"), changed).ok());
  const Row rows[] = {{"--batch-size 5", "--batch-size: 10 → 5"},
                      {"--optimizer sgd", "--optimizer: adamw → sgd"},
                      {"--seed 7", "--seed: 42 → 7"},
                      {"--data other.npz", "--data: its samples are not those"},
                      {"--data changed.npz", "--data: its samples are not those"},
                      {"--model other.onnx", "--model: is not the file"},
                      {"--model without.onnx", "--model: is not the file"},
                      {"--overwrite", "--overwrite"}};
  for (const Row& row : rows) {
    const Outcome o = RunProcess("--resume r --quiet --epochs 3 " + row.flags);
    EXPECT_EQ(o.code, 1) << row.flags << o.err;
    EXPECT_NE(o.err.find(row.problem), std::string::npos) << row.flags << "\n" << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
  const Outcome forced = RunProcess("--resume r --quiet --epochs 3 --data other.npz --batch-size 5 --resume-force");
  EXPECT_EQ(forced.code, 0) << forced.err;
  EXPECT_NE(forced.err.find("--batch-size: 10 → 5: ignored"), std::string::npos) << forced.err;
  EXPECT_NE(forced.err.find("ignored"), std::string::npos) << forced.err;
  const Outcome none = RunProcess("--resume nowhere --quiet");
  EXPECT_EQ(none.code, 1);
  EXPECT_NE(none.err.find("nowhere"), std::string::npos) << none.err;
}

TEST_F(Resume, AnotherNumberOfThreadsIsAnnounced) {
  ASSERT_EQ(Train("--epochs 1 --out r").code, 0);
  const Outcome o = RunProcess("--resume r --epochs 2 --threads 2 --quiet");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("--threads: 1 → 2"), std::string::npos) << o.err;
}

TEST_F(Resume, ADamagedCheckpointIsSkippedAndNamed) {
  ASSERT_EQ(Train("--epochs 2 --out whole --save-every 1 --keep-last 9").code, 0);
  CutAt("whole", "r", 5);
  std::string path = Path("r/checkpoints/step-00000005/model.safetensors"), bytes = ReadAll(path);
  bytes[bytes.size() / 2] ^= 1;
  WriteAll(path, bytes);
  const Outcome o = RunProcess("--resume r --quiet");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("step-00000005/model.safetensors: is damaged"), std::string::npos) << o.err;
  EXPECT_TRUE(Read("r") == Read("whole"));
  EXPECT_EQ(Summary("r")["resumed_from"], 4);
}

TEST_F(Resume, ExportsAndStartsFromACheckpoint) {
  ASSERT_EQ(Train("--epochs 2 --out r --save-every 3 --keep-last 9").code, 0);
  const Outcome last = RunProcess("export --model m.onnx --checkpoint r --out last.onnx");
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_EQ(ReadAll(Path("last.onnx")), ReadAll(Path("r/model.onnx")));
  ASSERT_EQ(RunProcess("export --model m.onnx --checkpoint r/checkpoints/step-00000003 --out third.onnx").code, 0);
  EXPECT_NE(ReadAll(Path("third.onnx")), ReadAll(Path("last.onnx")));
  const Outcome more = RunProcess("--model m.onnx --data d.npz --init-from r --max-steps 1 --lr 1e-9 --out s --quiet");
  ASSERT_EQ(more.code, 0) << more.err;
  const Outcome before = RunProcess("eval --model r/model.onnx --data d.npz --json");
  const Outcome after = RunProcess("eval --model s/model.onnx --data d.npz --json");
  EXPECT_NEAR(Json::parse(before.out)["loss"].get<double>(), Json::parse(after.out)["loss"].get<double>(), 0.05);
  EXPECT_NE(RunProcess("--model m.onnx --data d.npz --init-from nowhere --out t").err.find("nowhere"),
            std::string::npos);
}

TEST_F(Resume, AFailedRunLeavesItsLastGoodWeights) {
  const Outcome o = Train("--lr 1e30 --max-grad-norm 0 --optimizer sgd --save-every end --out r --on-nonfinite abort");
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_TRUE(Exists("r/model.unfinished.onnx"));
  EXPECT_FALSE(Exists("r/model.onnx"));
  EXPECT_FALSE(ListCheckpoints(Path("r/checkpoints")).empty());
}

}  // namespace
}  // namespace onnxtrain
