// Training with moments of 8 bits, weights of bf16, and schedule-free averages: it learns, its plan is smaller, and an
// interrupted run goes on with the same bits.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "frontend/data/sources/numpy.h"
#include "frontend/onnx/read/file.h"
#include "optim/record/checkpoint/checkpoint_folder.h"
#include "tests/tools/blobs.h"
#include "tests/tools/run_scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain::low_memory {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::HasSubstr;

constexpr int64_t kInner = 2048, kNarrow = 16;

// x[batch,4] → 2048 → 16 → three classes: two matrices of more than 4,096 elements.
tiny::Model Network() {
  tiny::Model m;
  m.nodes = {{"MatMul", {"x", "w1"}, {"h0"}},  {"Add", {"h0", "b1"}, {"h1"}}, {"Relu", {"h1"}, {"h2"}},
             {"MatMul", {"h2", "w2"}, {"h3"}}, {"Tanh", {"h3"}, {"h4"}},      {"MatMul", {"h4", "w3"}, {"y"}}};
  m.weights = {{"w1", {4, kInner}, tiny::Uniform(4 * kInner, 0.5f, 1)},
               {"b1", {kInner}, tiny::Uniform(kInner, 0.1f, 2)},
               {"w2", {kInner, kNarrow}, tiny::Uniform(kInner * kNarrow, 0.05f, 3)},
               {"w3", {kNarrow, 3}, tiny::Uniform(kNarrow * 3, 0.4f, 4)}};
  return m;
}

class LowMemory : public RunScratch {
 protected:
  LowMemory() {
    Network().Save(Path("m.onnx"));
    EXPECT_TRUE(WriteNpz(Path("d.npz"), Blobs(60, {.noise = 0.9f, .distance = 1})).ok());
  }

  static constexpr const char* kBase =
      "--model m.onnx --data d.npz --eval-split last:0.2 --batch-size 12 --threads 1 --quiet ";

  Json Plan(const std::string& flags) const {
    const Outcome o = Run("plan --model m.onnx --backend cpu --threads 1 --json --batch-size 64 " + flags);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? Json::parse(o.out) : Json();
  }
  double FinalLoss(const std::string& flags) const {
    const Outcome o = Run(StrCat(kBase, "--epochs 10 --lr 1e-3 --overwrite --out r ", flags));
    EXPECT_EQ(o.code, 0) << flags << o.err;
    return Summary("r")["eval"]["loss"];
  }
  // Compares the run with one that is killed after update 4 of 8 and continued.
  void CheckResume(const std::string& flags) const {
    for (const char* folder : {"whole", "cut"}) fs::remove_all(Path(folder));
    ASSERT_EQ(Run(StrCat(kBase, "--epochs 2 --lr 1e-3 --save-every 2 --keep-last 9 --out whole ", flags)).code, 0)
        << flags;
    fs::copy(Path("whole"), Path("cut"), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    for (const char* name : {"model.onnx", "summary.json"}) fs::remove(Path(StrCat("cut/", name)));
    for (const int64_t step : ListCheckpoints(Path("cut/checkpoints"))) {
      if (step > 4) fs::remove_all(Path(StrCat("cut/checkpoints/", CheckpointName(step))));
    }
    const Outcome resumed = Run("--resume cut --quiet");
    ASSERT_EQ(resumed.code, 0) << flags << resumed.err;
    EXPECT_EQ(Summary("cut")["resumed_from"], 4) << flags;
    EXPECT_TRUE(ReadAll(Path("cut/model.onnx")) == ReadAll(Path("whole/model.onnx"))) << flags;
    EXPECT_EQ(Summary("cut")["eval"], Summary("whole")["eval"]) << flags;
  }
};

TEST_F(LowMemory, ResumesWithTheSameBits) {
  for (const char* backend : {"cpu", "torch"}) {
    for (const char* flags : {"--optimizer adamw8bit", "--weight-dtype bf16", "--optimizer schedule_free_adamw"})
      CheckResume(StrCat("--backend ", backend, " ", flags));
  }
  CheckResume("--optimizer lion8bit");
  for (const char* backend : {"cpu", "torch"})
    CheckResume(StrCat("--optimizer galore_adamw --galore-rank 4 --galore-update-proj-gap 3 --backend ", backend));
  CheckResume("--optimizer adamw8bit --gradient-accumulation-steps 2 --ema-decay 0.9");
  CheckResume("--optimizer adamw8bit --weight-dtype bf16 --mixed-precision bf16 --gradient-accumulation-steps 2");
}

TEST_F(LowMemory, LearnsAsWell) {
  const double loss = FinalLoss("");
  for (const char* backend : {"cpu", "torch"}) {
    for (const char* flags : {"--optimizer adamw8bit", "--weight-dtype bf16",
                              "--optimizer adamw8bit --weight-dtype bf16 --mixed-precision bf16"})
      EXPECT_NEAR(FinalLoss(StrCat("--backend ", backend, " ", flags)), loss, 0.05 * loss) << backend << flags;
  }
}

TEST_F(LowMemory, PlansLess) {
  const Json plain = Plan("")["memory"], coded = Plan("--optimizer adamw8bit")["memory"];
  const double matrices = 4 * kInner + kInner * kNarrow, others = kInner + kNarrow * 3;
  EXPECT_NEAR(coded["moments"].get<double>(), 2 * (matrices * (1 + 4 / 256.0) + others * 4), 1024);
  EXPECT_LT(coded["moments"].get<double>(), 0.35 * plain["moments"].get<double>());
  const Json halved = Plan("--weight-dtype bf16")["memory"];
  EXPECT_NEAR(halved["parameters"].get<double>(), 2 * (matrices + kNarrow * 3) + 4 * kInner, 512);
  EXPECT_EQ(halved["moments"], plain["moments"]);
}

TEST_F(LowMemory, PlansDividedMoments) {
  const double whole = Plan("--optimizer adamw8bit")["memory"]["moments"];
  for (const char* level : {"optimizer", "gradients", "full"}) {
    const Json part = Plan(StrCat("--optimizer adamw8bit --world 2 --shard ", level))["memory"];
    EXPECT_LT(part["moments"].get<double>(), 0.6 * whole) << level << ": one rank has the floats of small weights";
  }
}

TEST_F(LowMemory, WritesTheTypeOfTheFile) {
  FinalLoss("--weight-dtype bf16");
  const auto model = OnnxModel::Load(Path("r/model.onnx"));
  ASSERT_TRUE(model.ok()) << model.status();
  const HostTensor* w2 = (*model)->Initializer("w2");
  ASSERT_NE(w2, nullptr);
  EXPECT_EQ(w2->dtype(), DType::kFloat32);
  EXPECT_TRUE(w2->CastTo(DType::kBFloat16).CastTo(DType::kFloat32).SameBytes(*w2));
  ASSERT_EQ(Run(StrCat(kBase, "--epochs 1 --save-every 1 --weight-dtype bf16 --overwrite --out b")).code, 0);
  const Outcome again = Run(StrCat(kBase, "--epochs 1 --init-from b --out c"));
  EXPECT_EQ(again.code, 0) << again.err;
}

TEST_F(LowMemory, ExportsTheScheduleFreeAverage) {
  const double loss = FinalLoss("--optimizer schedule_free_adamw");
  const Outcome eval = Run("eval --model r/model.onnx --data d.npz --json --quiet");
  ASSERT_EQ(eval.code, 0) << eval.err;
  EXPECT_LT(loss, 1.0);
  ASSERT_EQ(
      Run(StrCat(kBase, "--epochs 10 --lr 1e-3 --optimizer schedule_free_adamw --export-weights last --out last")).code,
      0);
  EXPECT_FALSE(ReadAll(Path("last/model.onnx")) == ReadAll(Path("r/model.onnx")));
}

TEST_F(LowMemory, RefusesWhatCannotBe) {
  const std::string line = kBase;
  EXPECT_THAT(Run(line + "--weight-dtype bf16 --ema-decay 0.9 --out x").err,
              HasSubstr("--weight-dtype bf16: the run keeps"));
  EXPECT_THAT(Run(line + "--optimizer schedule_free_adamw --ema-decay 0.9 --out x").err,
              HasSubstr("--ema-decay: the --optimizer keeps an average"));
  const std::string two = StrCat("launch --nproc 2 -- ", line, "--epochs 1 --overwrite --out x ");
  EXPECT_THAT(RunProcess(two + "--shard optimizer --weight-dtype bf16").err,
              HasSubstr("--weight-dtype bf16 reads whole weights"));
  EXPECT_THAT(RunProcess(two + "--tensor 2 --optimizer adamw8bit").err,
              HasSubstr("--optimizer adamw8bit: consecutive elements of a weight share a scale, and a rank of --tensor "
                        "2 has columns that cut them"));
}

TEST_F(LowMemory, RanksComputeTheSameUpdate) {
  for (const char* flags : {"--optimizer adamw8bit", "--weight-dtype bf16"}) {
    const double alone = FinalLoss(flags);
    const Outcome two =
        RunProcess(StrCat("launch --nproc 2 -- ", kBase, "--epochs 10 --lr 1e-3 --overwrite --out two ", flags));
    ASSERT_EQ(two.code, 0) << flags << two.err;
    EXPECT_NEAR(Summary("two")["eval"]["loss"].get<double>(), alone, 0.02 * alone) << flags;
  }
}

}  // namespace
}  // namespace onnxtrain::low_memory
