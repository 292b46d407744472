// --mixed-precision, --loss-scale, --on-nonfinite, clipping and class weights, through the program.
#include <cmath>
#include <nlohmann/json.hpp>

#include "frontend/base/strings.h"
#include "frontend/data/sources/numpy.h"
#include "tests/tools/blobs.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

// The numbers of sample `bad` are finite, their squares are not.
NamedArrays Samples(int64_t n, int64_t bad = -1) {
  NamedArrays samples = Blobs(n);
  for (int64_t j = 0; bad >= 0 && j < 4; ++j) samples[0].second.Set(bad * 4 + j, 3e38);
  return samples;
}

class PrecisionFlags : public Scratch {
 protected:
  PrecisionFlags() {
    tiny::Mlp(3).Save(Path("m.onnx"));
    tiny::SquaredMlp(3).Save(Path("squared.onnx"));
    EXPECT_TRUE(WriteNpz(Path("d.npz"), Samples(96)).ok());
    EXPECT_TRUE(WriteNpz(Path("bad.npz"), Samples(96, 40)).ok());
  }

  Outcome TrainOnBadSample(const std::string& flags) const { return Train(flags, "bad.npz", "squared.onnx"); }
  Outcome Train(const std::string& flags, const std::string& data = "d.npz",
                const std::string& model = "m.onnx") const {
    return Run(StrCat("--model ", model, " --data ", data, " --lr 1e-2 --overwrite --out r ",
                      flags.find("--batch-size") == std::string::npos ? "--batch-size 16 " : "",
                      flags.find("--epochs") == std::string::npos ? "--epochs 20 " : "", flags));
  }
  Json Summary() const { return Json::parse(ReadAll(Path("r/summary.json"))); }
  std::vector<Json> Steps() const {
    std::vector<Json> steps;
    std::istringstream lines(ReadAll(Path("r/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);) steps.push_back(Json::parse(line));
    return steps;
  }
  void Refuses(const std::string& flags, const std::string& part) const {
    ExpectRefused(Train(flags + " --quiet"), part);
  }
};

TEST_F(PrecisionFlags, HalvesTrainAsFloat32Does) {
  ASSERT_EQ(Train("--quiet").code, 0);
  EXPECT_EQ(Summary()["precision"], "float32");
  const double want = Summary()["final_loss"];
  for (const char* backend : {"cpu", "torch"}) {
    for (const char* precision : {"bf16", "fp16"}) {
      const Outcome o = Train(StrCat("--mixed-precision ", precision, " --backend ", backend));
      ASSERT_EQ(o.code, 0) << o.err;
      EXPECT_EQ(Summary()["precision"], precision);
      EXPECT_NE(o.err.find(StrCat("products in ", precision)), std::string::npos) << o.err;
      EXPECT_EQ(o.err.find("emulated") != std::string::npos, std::string(precision) == "fp16") << o.err;
      EXPECT_NEAR(Summary()["final_loss"].get<double>(), want, 0.02 * want) << precision << " on " << backend;
    }
  }
}

TEST_F(PrecisionFlags, AutoSaysWhatItChose) {
  const Outcome o = Train("--mixed-precision auto");
  ASSERT_EQ(o.code, 0) << o.err;
  const std::string chosen = Summary()["precision"];
  EXPECT_NE(o.err.find(StrCat("auto: ", chosen, ", as forward and backward take ")), std::string::npos) << o.err;
  EXPECT_NE(ReadAll(Path("r/config.flags")).find(StrCat("--mixed-precision=", chosen == "bf16" ? "bf16" : "no")),
            std::string::npos);
}

TEST_F(PrecisionFlags, TheLossScaleFallsUntilGradientsAreFinite) {
  // So large a scale overflows fp16 at first; every skip halves it.
  ASSERT_EQ(Train("--mixed-precision fp16 --loss-scale 1e9 --max-steps 25 --log-every 1 --quiet").code, 2);
  ASSERT_EQ(Train("--mixed-precision fp16 --loss-scale 256 --max-steps 5 --log-every 1 --quiet").code, 0);
  for (const Json& step : Steps()) EXPECT_EQ(step["loss_scale"], 256);
  const std::string six = "--mixed-precision fp16 --log-every 1 --max-steps 6 --quiet";
  ASSERT_EQ(Train(six, "d.npz", "squared.onnx").code, 0);
  const auto without = Summary()["skipped_steps"].get<int64_t>();
  ASSERT_EQ(TrainOnBadSample(six).code, 0);
  double scale = 65536;
  int64_t skipped = 0;
  for (const Json& step : Steps()) {
    const auto skips = step["skipped"].get<int64_t>();
    skipped += skips;
    for (int64_t i = 0; i < skips; ++i) scale /= 2;
    EXPECT_EQ(step["loss_scale"], scale);
  }
  EXPECT_EQ(skipped, without + 1);  // the batch with that sample
  EXPECT_EQ(Summary()["skipped_steps"], skipped);
}

TEST_F(PrecisionFlags, OnNonfinite) {
  EXPECT_EQ(TrainOnBadSample("--quiet").code, 0);
  EXPECT_EQ(Summary()["skipped_steps"], 20);  // once in every epoch
  const Outcome o = TrainOnBadSample("--on-nonfinite abort --quiet");
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("was not finite (--on-nonfinite abort)"), std::string::npos) << o.err;
  EXPECT_LE(Summary()["steps"], 6);
  // 20 in a row are enough, however rarely is logged.
  EXPECT_EQ(TrainOnBadSample("--quiet --batch-size 96 --epochs 100 --log-every 90").code, 2);
  EXPECT_EQ(Summary()["steps"], 20);
}

TEST_F(PrecisionFlags, Refuses) {
  Refuses("--loss-scale 1024", "--loss-scale: has no effect: only --mixed-precision fp16 scales the loss");
  Refuses("--mixed-precision fp16 --loss-scale 0", "--loss-scale: expected dynamic or a number above 0, got '0'");
  Refuses("--mixed-precision fp8", "--mixed-precision: expected one of no|tf32|bf16|fp16|auto, got 'fp8'");
  Refuses("--mixed-precision tf32", "--mixed-precision tf32: only CUDA devices have it, this run is on cpu");
  Refuses("--class-weights 1,2", "--class-weights: 2 weights for the 3 classes of output");
  Refuses("--class-weights 1,-2,1", "--class-weights: expected numbers of at least 0, got '-2'");
}

TEST_F(PrecisionFlags, ClippingReplacesTheDefaultNorm) {
  const auto page = [&](const std::string& flags) { return Train(flags + " --epochs 1").err; };
  EXPECT_NE(page("").find("global norm ≤ 1"), std::string::npos);
  const std::string by_value = page("--clip-value 0.1"), both = page("--agc 0.02 --max-grad-norm 3");
  EXPECT_NE(by_value.find("elements within ±0.1"), std::string::npos) << by_value;
  EXPECT_EQ(by_value.find("global norm"), std::string::npos) << by_value;
  EXPECT_NE(both.find("global norm ≤ 3, gradients ≤ 0.02 of their weights"), std::string::npos) << both;
}

// Accuracy counts every sample once, whatever its class weighs; accumulation changes nothing.
TEST_F(PrecisionFlags, ClassWeights) {
  ASSERT_EQ(Train("--eval-data d.npz --class-weights 1,2,3 --quiet").code, 0);
  const double accuracy = Summary()["eval"]["accuracy"], loss = Summary()["final_loss"];
  EXPECT_GT(accuracy, 0.95);
  EXPECT_LE(accuracy, 1);
  ASSERT_EQ(Train("--eval-data d.npz --class-weights 1,2,3 --micro-batch-size 8 --quiet").code, 0);
  EXPECT_NEAR(Summary()["final_loss"].get<double>(), loss, 1e-5 * loss);
  ASSERT_EQ(Train("--eval-data d.npz --quiet").code, 0);
  EXPECT_GT(std::abs(Summary()["final_loss"].get<double>() - loss), 1e-3 * loss);
}

}  // namespace
}  // namespace onnxtrain
