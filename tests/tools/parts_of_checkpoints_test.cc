// Checkpoints that ranks write together, each the parts of the state that it has.
#include <cerrno>
#include <cstdlib>
#include <map>

#include "optim/record/checkpoint/checkpoint_folder.h"
#include "tests/tools/run_of_ranks.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

// ONNXTRAIN_LONG_TESTS=1 interrupts at every place instead of some.
bool IsLong() { return std::getenv("ONNXTRAIN_LONG_TESTS") != nullptr; }

class PartsOfCheckpoints : public RunOfRanks {
 protected:
  // Weights that `--shard full` divides.
  PartsOfCheckpoints() {
    tiny::Model wide = tiny::Mlp(3);
    wide.weights[0] = {"w1", {4, 8192}, tiny::Uniform(4 * 8192, 0.05F, 1)};
    wide.weights[1] = {"b1", {8192}, std::vector<float>(8192, 0.1F)};
    wide.weights[2] = {"w2", {8192, 3}, tiny::Uniform(3 * 8192, 0.05F, 2)};
    wide.Save(Path("wide.onnx"));
  }

  static constexpr const char* kWide =
      "--model wide.onnx --data d.npz --eval-data e.npz --batch-size 16 --micro-batch-size 4 --seed 3 --threads 1 ";
  static constexpr const char* kSgd = "--optimizer sgd --momentum 0.9 --lr 0.05 ";

  static std::string PartFile(int rank, int ranks) {
    return StrCat("model.rank-", rank, "-of-", ranks, ".safetensors");
  }
  std::string Model(const std::string& run) const { return ReadAll(Path(run + "/model.onnx")); }
  void CopyRun(const std::string& from, const std::string& to) const {
    fs::remove_all(Path(to));
    fs::copy(Path(from), Path(to), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }
  // The tensors of the newest checkpoint.
  std::map<std::string, HostTensor> State(const std::string& run) const {
    const auto stored = OpenCheckpoint(Path(run + "/checkpoints/latest"));
    EXPECT_TRUE(stored.ok()) << stored.status();
    std::map<std::string, HostTensor> tensors;
    if (!stored.ok()) return tensors;
    for (auto* read : {ReadModelTensors, ReadOptimizerTensors}) {
      NamedArrays arrays = read(*stored).value();
      tensors.insert(arrays.begin(), arrays.end());
    }
    return tensors;
  }
  void ExpectSameState(const std::string& one, const std::string& other, double tolerance) const {
    const auto a = State(one), b = State(other);
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, value] : a) {
      ASSERT_TRUE(b.contains(name)) << name;
      ASSERT_EQ(value.type(), b.at(name).type()) << name;
      for (int64_t i = 0; i < value.size(); ++i) ASSERT_NEAR(value.At(i), b.at(name).At(i), tolerance) << name;
    }
  }
};

// The same state as that of one process; the run goes on with any number of ranks, divided otherwise or not at all.
TEST_F(PartsOfCheckpoints, LoadOnAnyNumberOfRanks) {
  const std::string flags = StrCat(kWide, kSgd, "--save-every 3 --eval-every 1000000 --max-steps ");
  ASSERT_EQ(RunProcess(flags + "5 --out one").code, 0);
  ASSERT_EQ(RunProcess(flags + "9 --out longer").code, 0);
  for (const char* level : {"optimizer", "gradients", "full"}) {
    SCOPED_TRACE(level);
    const std::string divided = StrCat(" --shard ", level);
    for (const int ranks : {2, 4}) {
      const Outcome o = RunProcess(StrCat(Launch(ranks), flags, "5 --overwrite --out r", divided));
      ASSERT_EQ(o.code, 0) << o.err;
      for (int rank = 0; rank < ranks; ++rank)
        EXPECT_TRUE(Exists("r/checkpoints/latest/" + PartFile(rank, ranks))) << rank;
      EXPECT_FALSE(Exists("r/checkpoints/latest/model.safetensors"));
      ExpectSameState("one", "r", 1e-5);
    }
    for (const char* how : {"launch --nproc 2 -- --shard full", "launch --nproc 3 -- --shard gradients",
                            "launch --nproc 2 -- --shard none", ""}) {
      CopyRun("r", "again");
      const Outcome resumed = RunProcess(StrCat(how, " --resume again --max-steps 9"));
      ASSERT_EQ(resumed.code, 0) << how << "\n" << resumed.err;
      EXPECT_EQ(Summary("again")["resumed_from"], 5) << how;
      ExpectSameState("longer", "again", 1e-5);
    }
  }
}

TEST_F(PartsOfCheckpoints, OfPipelinesAndTensorsLoadOnOneProcess) {
  for (const char* how : {"--pipeline 2", "--tensor 2 --ema-decay 0.9", "--pipeline 2 --ema-decay 0.9"}) {
    SCOPED_TRACE(how);
    const std::string average = std::string(how).find("ema") != std::string::npos ? " --ema-decay 0.9" : "";
    const std::string flags =
        StrCat(kWide, kSgd, "--save-every 3 --eval-every 1000000 --overwrite --max-steps 5 --out ");
    ASSERT_EQ(RunProcess(StrCat(flags, "one", average)).code, 0);
    const Outcome o = RunProcess(StrCat(Launch(2), flags, "r ", how));
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(Exists("r/checkpoints/latest/" + PartFile(1, 2)));
    ExpectSameState("one", "r", 1e-5);
    const Outcome resumed = RunProcess("--resume r --max-steps 7");
    EXPECT_EQ(resumed.code, 0) << resumed.err;
  }
}

// Moments of 8 bits: two ranks have the same bits whatever they divide, also after a resumption that divides otherwise.
// Other numbers of ranks add the gradients in another order.
TEST_F(PartsOfCheckpoints, OfMomentsIn8Bits) {
  const std::string flags =
      "--model wide.onnx --data d.npz --batch-size 16 --micro-batch-size 8 --seed 3 --threads 1 --optimizer adamw8bit "
      "--lr 0.001 --max-grad-norm 0 --save-every 3 --max-steps ";
  ASSERT_EQ(RunProcess(StrCat(Launch(2), flags, "5 --shard none --out whole")).code, 0);
  ASSERT_EQ(RunProcess(StrCat(Launch(2), flags, "9 --shard none --out longer")).code, 0);
  ASSERT_TRUE(State("whole").contains("$exp_avg_scale:w1"));
  for (const std::string level : {"optimizer", "gradients", "full"}) {
    SCOPED_TRACE(level);
    const Outcome o = RunProcess(StrCat(Launch(2), flags, "5 --overwrite --out r --shard ", level));
    ASSERT_EQ(o.code, 0) << o.err;
    ExpectSameState("whole", "r", 0);
    for (const char* how : {"launch --nproc 2 -- --shard full", "launch --nproc 2 -- --shard optimizer",
                            "launch --nproc 2 -- --shard none"}) {
      CopyRun("r", "again");
      const Outcome resumed = RunProcess(StrCat(how, " --resume again --max-steps 9"));
      ASSERT_EQ(resumed.code, 0) << how << "\n" << resumed.err;
      ExpectSameState("longer", "again", 0);
    }
    for (const char* how : {"launch --nproc 3 -- --shard full", ""}) {
      CopyRun("r", "again");
      const Outcome resumed = RunProcess(StrCat(how, " --resume again --max-steps 9"));
      ASSERT_EQ(resumed.code, 0) << how << "\n" << resumed.err;
      const auto longer = State("longer"), again = State("again");
      for (const char* weight : {"w1", "b1", "w2"}) {
        const HostTensor &want = longer.at(weight), &got = again.at(weight);
        for (int64_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got.At(i), want.At(i), 1e-4) << weight << how;
      }
    }
  }
}

TEST_F(PartsOfCheckpoints, OfPipelinesWithMomentsIn8Bits) {
  const std::string flags = StrCat(kWide, "--optimizer adamw8bit --lr 0.001 --save-every 3 --max-steps ");
  ASSERT_EQ(RunProcess(StrCat(Launch(2), flags, "9 --pipeline 2 --out longer")).code, 0);
  const Outcome o = RunProcess(StrCat(Launch(2), flags, "5 --pipeline 2 --out r"));
  ASSERT_EQ(o.code, 0) << o.err;
  CopyRun("r", "again");
  const Outcome resumed = RunProcess(StrCat(Launch(2), "--resume again --pipeline 2 --max-steps 9"));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  ExpectSameState("longer", "again", 0);
  const Outcome alone = RunProcess("--resume r --max-steps 9");
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_EQ(Summary("r")["resumed_from"], 5);
}

// From 2 ranks on 4, and from these on one.
TEST_F(PartsOfCheckpoints, GrowAndShrink) {
  const std::string flags = StrCat(kWide, kSgd, "--save-every 2 --max-steps ");
  ASSERT_EQ(RunProcess(flags + "12 --out one").code, 0);
  ASSERT_EQ(RunProcess(StrCat(Launch(2), flags, "4 --shard full --out r")).code, 0);
  ASSERT_EQ(RunProcess(StrCat(Launch(4), "--resume r --max-steps 8")).code, 0);
  EXPECT_TRUE(Exists("r/checkpoints/latest/" + PartFile(3, 4)));
  const Outcome last = RunProcess("--resume r --max-steps 12 --shard none");
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_TRUE(Exists("r/checkpoints/latest/model.safetensors"));
  ExpectSameState("one", "r", 1e-5);
}

TEST_F(PartsOfCheckpoints, EveryCommandReadsThem) {
  const Outcome o =
      RunProcess(StrCat(Launch(2), kWide, "--shard full --max-steps 5 --checkpoint-compression zstd --out r"));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(Exists(StrCat("r/checkpoints/latest/", PartFile(1, 2), ".zst")));
  ASSERT_EQ(RunProcess("export --model wide.onnx --checkpoint r --out x.onnx").code, 0);
  EXPECT_TRUE(ReadAll(Path("x.onnx")) == Model("r"));
  const Outcome more = RunProcess("--model wide.onnx --data d.npz --init-from r --max-steps 1 --out s");
  EXPECT_EQ(more.code, 0) << more.err;
}

TEST_F(PartsOfCheckpoints, DamageFallsBackToTheCheckpointBefore) {
  ASSERT_EQ(
      RunProcess(StrCat(Launch(2), kWide, "--shard gradients --save-every 2 --keep-last 9 --max-steps 6 --out r")).code,
      0);
  const auto resume = [&] {
    const Outcome resumed = RunProcess("--resume again --max-steps 7");
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_NE(resumed.err.find("skipped"), std::string::npos) << resumed.err;
    return Summary("again")["resumed_from"].get<int>();
  };
  const std::string part = Path("again/checkpoints/step-00000006/" + PartFile(1, 2)),
                    other = Path("again/checkpoints/step-00000006/" + PartFile(0, 2));
  CopyRun("r", "again");
  fs::remove(part);
  EXPECT_EQ(resume(), 4) << "without a part";
  CopyRun("r", "again");
  fs::resize_file(part, fs::file_size(part) - 4);
  EXPECT_EQ(resume(), 4) << "truncated";
  CopyRun("r", "again");
  std::string bytes = ReadAll(part);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  WriteAll(part, bytes);
  EXPECT_EQ(resume(), 4) << "with another bit";
  CopyRun("r", "again");
  fs::rename(part, Path("kept"));
  fs::rename(other, part);
  fs::rename(Path("kept"), other);
  EXPECT_EQ(resume(), 4) << "parts of two ranks are swapped";
}

// One line says so, and the run goes on from the checkpoint before.
TEST_F(PartsOfCheckpoints, ARankThatCannotWriteFailsTheSaveOfAll) {
  const std::string flags =
      StrCat(kWide, "--shard optimizer --save-every 2 --keep-last 9 --max-steps 6 --overwrite --out r");
  const std::string shim = WithFaultShim("");
  RunTwo(flags, "", "", true, {"", StrCat(shim, "FAULT_COUNT=", Path("count"))});
  ASSERT_EQ(ExitCode(0), 0) << ReadAll(Path("o0"));
  const std::string whole = Model("r");
  const int calls = std::atoi(ReadAll(Path("count")).c_str());
  ASSERT_GE(calls, 3 * 8) << "of three checkpoints, the folder and two files each";
  int harmless = 0;
  for (int call = 1; call <= calls; call += IsLong() ? 1 : 5) {
    RunTwo(flags, "", "", true, {"", StrCat(shim, "FAULT=", ENOSPC, " FAULT_AT=", call)});
    const std::string printed = ReadAll(Path("o0"));
    ASSERT_EQ(ExitCode(0), 0) << call << printed;
    EXPECT_EQ(ExitCode(1), 0) << call << ReadAll(Path("o1"));
    EXPECT_EQ(ReadAll(Path("o1")), "") << call;
    EXPECT_TRUE(Model("r") == whole) << call;
    const size_t warned = printed.find("a checkpoint was not saved: rank 1: ");
    if (warned == std::string::npos && ListCheckpoints(Path("r/checkpoints")).size() == 3) ++harmless;
    if (warned == std::string::npos) continue;
    EXPECT_EQ(printed.find("was not saved", warned + 30), std::string::npos) << call << printed;
    EXPECT_NE(printed.find("No space left on device"), std::string::npos) << printed;
    const std::vector<int64_t> kept = ListCheckpoints(Path("r/checkpoints"));
    EXPECT_EQ(kept.size(), 2u) << call;
    std::vector<std::string> skipped;
    EXPECT_TRUE(OpenNewestCheckpoint(Path("r/checkpoints"), &skipped).ok()) << call;
    EXPECT_TRUE(skipped.empty()) << call;
  }
  EXPECT_LE(harmless, 3) << "only that of the folder, which is closed once in each save";
}

// The ranks meet again for the next save.
TEST_F(PartsOfCheckpoints, AWriteThatTakesLongerThanTheTimeOutFailsOneSave) {
  const std::string flags = "--shard optimizer --save-every 2 --keep-last 9 --max-steps 6 --comm-timeout 3s --out r";
  const std::string slow = WithFaultShim("FAULT=sleep:4 FAULT_AT=3");
  RunTwo(StrCat(kWide, flags), "", "", true, {"", slow});
  const std::string printed = ReadAll(Path("o0"));
  ASSERT_EQ(ExitCode(0), 0) << printed;
  EXPECT_EQ(ExitCode(1), 0) << ReadAll(Path("o1"));
  const size_t warned = printed.find("a checkpoint was not saved: ");
  ASSERT_NE(warned, std::string::npos) << printed;
  EXPECT_NE(printed.find("exchange of the parts of a checkpoint", warned), std::string::npos) << printed;
  EXPECT_EQ(printed.find("was not saved", warned + 30), std::string::npos) << printed;
  EXPECT_EQ(ListCheckpoints(Path("r/checkpoints")), (std::vector<int64_t>{4, 6}));
}

// Of any rank: the others end, and the run goes on to the same bits.
TEST_F(PartsOfCheckpoints, ARankThatIsKilledAtAnyCallOfASaveCostsNoUpdate) {
  for (const std::string level : {"optimizer", "full"}) {
    const std::string flags =
        StrCat(kWide, "--shard ", level, " --save-every 2 --keep-last 1 --max-steps 4 --comm-timeout 20s --out ");
    const std::string shim = WithFaultShim("");
    fs::remove_all(Path("whole"));
    RunTwo(flags + "whole", "", "", true,
           {StrCat(shim, "FAULT_COUNT=", Path("n0")), StrCat(shim, "FAULT_COUNT=", Path("n1"))});
    ASSERT_EQ(ExitCode(0), 0) << ReadAll(Path("o0"));
    for (int rank = 0; rank < 2; ++rank) {
      const int calls = std::atoi(ReadAll(Path(StrCat("n", rank))).c_str());
      ASSERT_GE(calls, rank == 0 ? 40 : 16);
      for (int call = level == "full" ? 3 : 1; call <= calls; call += IsLong() ? 1 : calls / 3 + 1) {
        SCOPED_TRACE(StrCat(level, ", rank ", rank, " killed in front of call ", call, " of ", calls));
        fs::remove_all(Path("cut"));
        std::array<std::string, 2> environment;
        environment[rank] = StrCat(shim, "FAULT=kill FAULT_AT=", call);
        RunTwo(flags + "cut", "", "", true, environment);
        ASSERT_EQ(ExitCode(rank), 137);
        // Where all updates are done, rank 0 may have all that it needs: then its model is whole. No checkpoint is left
        // where the first save took longer than the updates.
        if (ExitCode(1 - rank) == 0) {
          EXPECT_EQ(rank, 1);
          EXPECT_TRUE(Model("cut") == Model("whole"));
          if (ListCheckpoints(Path("cut/checkpoints")).empty()) continue;
        }
        const Outcome resumed = RunProcess(StrCat(Launch(2), flags, "cut --resume auto"));
        ASSERT_EQ(resumed.code, 0) << resumed.err;
        EXPECT_TRUE(Model("cut") == Model("whole"));
        for (const auto& entry : fs::directory_iterator(Path("cut/checkpoints")))
          EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp-")) << entry.path();
      }
    }
  }
}

// Rank 1 is started elsewhere, and has another folder of the name.
TEST_F(PartsOfCheckpoints, RanksThatSeeOtherFoldersSendTheirParts) {
  fs::create_directories(Path("elsewhere"));
  for (const char* file : {"wide.onnx", "d.npz", "e.npz"}) fs::copy(Path(file), Path(StrCat("elsewhere/", file)));
  RunTwo(StrCat(kWide, "--shard full --max-steps 4 --save-every 2 --out r"), "", "", true, {"", "env -C elsewhere"});
  ASSERT_EQ(ExitCode(0), 0) << ReadAll(Path("o0"));
  EXPECT_NE(ReadAll(Path("o0")).find("not all ranks see this folder"), std::string::npos) << ReadAll(Path("o0"));
  EXPECT_TRUE(Exists("r/checkpoints/latest/model.safetensors"));
  EXPECT_FALSE(Exists("elsewhere/r/checkpoints"));
  for (const char* folder : {"r", "elsewhere/r"}) {
    for (const auto& entry : fs::directory_iterator(Path(folder)))
      EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp-")) << entry.path();
  }
  ASSERT_EQ(RunProcess(StrCat(Launch(2), kWide, "--shard full --max-steps 4 --save-every 2 --out together")).code, 0);
  ExpectSameState("r", "together", 0);
}

}  // namespace
}  // namespace onnxtrain
