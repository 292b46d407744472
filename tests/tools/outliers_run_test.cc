// A run reports updates whose loss or gradient norm is an outlier, and gradients that are zero.
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "frontend/base/strings.h"
#include "frontend/data/sources/numpy.h"
#include "tests/paths.h"
#include "tests/tools/blobs.h"
#include "tests/tools/run_scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

class OutlierRun : public RunScratch {
 protected:
  // 200 batches of four; the samples of batch 150 are a hundred times too large, and point the wrong way.
  OutlierRun() {
    tiny::Mlp(3).Save(Path("m.onnx"));
    NamedArrays arrays = Blobs(800);
    HostTensor& x = arrays[0].second;
    for (int64_t i = 149 * 16; i < 150 * 16; ++i) x.Set(i, -100 * x.At(i));
    EXPECT_TRUE(WriteNpz(Path("d.npz"), arrays).ok());
  }

  static constexpr const char* kTrain =
      "--model m.onnx --data d.npz --batch-size 4 --no-shuffle --epochs 1 --log-every 20 --threads 1 --lr 1e-3 ";
  std::vector<Json> Rows(const std::string& run) const {
    std::vector<Json> rows;
    for (Json& row : Metrics(run)) {
      if (row.contains("outliers")) rows.push_back(std::move(row));
    }
    return rows;
  }
};

TEST_F(OutlierRun, IsReportedOnceWithItsUpdate) {
  for (const std::string backend : {"cpu", "torch"}) {
    const Outcome o = RunProcess(StrCat(kTrain, "--quiet --overwrite --out r --backend ", backend));
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(std::regex_search(o.err, std::regex("update 150: the loss is [0-9.e+]+, the median of the updates "
                                                    "before it [0-9.]+ \\(--dump-order")))
        << o.err;
    EXPECT_NE(o.err.find("update 150: the gradient norm is "), std::string::npos) << o.err;
    const std::vector<Json> rows = Rows("r");
    ASSERT_EQ(rows.size(), 1) << o.err;
    EXPECT_EQ(rows[0]["step"], 160);
    EXPECT_EQ(rows[0]["outliers"], 2);
    EXPECT_EQ(rows[0]["loss_outlier_step"], 150);
    EXPECT_EQ(rows[0]["grad_norm_outlier_step"], 150);
    EXPECT_GT(rows[0]["loss_outlier"].get<double>(), 5);
    const Json summary = Json::parse(ReadAll(Path("r/summary.json")));
    EXPECT_EQ(summary["warnings"].size(), 2) << summary["warnings"];
    EXPECT_NE(ReadAll(Path("r/report.html")).find("outliers</tspan>"), std::string::npos);
  }
}

// On a terminal, progress is a line that is overwritten.
TEST_F(OutlierRun, IsReportedOnALineOfItsOwn) {
  const std::string command = StrCat("cd '", folder_, "' && script -qec \"", BinaryPath("bin/onnxtrain"), " ", kTrain,
                                     "--out r\" log >.out 2>.err </dev/null");
  ASSERT_EQ(std::system(command.c_str()), 0) << ReadAll(Path(".err"));
  const std::string log = ReadAll(Path("log"));
  int warnings = 0;
  for (size_t at = log.find("onnxtrain: warning: update 150"); at != std::string::npos;
       at = log.find("onnxtrain: warning: update 150", at + 1)) {
    EXPECT_EQ(log[at - 1], '\n') << log.substr(at - 80, 160);
    ++warnings;
  }
  EXPECT_EQ(warnings, 2) << log;
}

TEST_F(OutlierRun, IsTheSameInARunThatGoesOn) {
  ASSERT_EQ(RunProcess(StrCat(kTrain, "--quiet --out whole")).code, 0);
  ASSERT_EQ(RunProcess(StrCat(kTrain, "--quiet --out cut --max-steps 155")).code, 0);
  ASSERT_EQ(RunProcess("--resume cut --quiet --max-steps 200").code, 0);
  const std::vector<Json> rows = Rows("cut");
  ASSERT_EQ(rows.size(), 1);
  EXPECT_EQ(rows[0]["loss_outlier"], Rows("whole").at(0)["loss_outlier"]);
  EXPECT_EQ(rows[0]["step"], 160);
}

TEST_F(OutlierRun, NoneWithoutABadBatch) {
  EXPECT_TRUE(WriteNpz(Path("d.npz"), Blobs(800)).ok());
  const Outcome o = RunProcess(StrCat(kTrain, "--quiet --out r"));
  EXPECT_EQ(o.err, "");
  EXPECT_TRUE(Rows("r").empty());
}

// No weight has a path to the loss: the rectified ones are 0 for all samples.
TEST_F(OutlierRun, NoGradientIsReportedOnce) {
  tiny::Model model;
  model.nodes = {{"Relu", {"w"}, {"positive"}}, {"MatMul", {"x", "positive"}, {"y"}}};
  model.weights = {{"w", {4, 3}, std::vector<float>(12, -1)}};
  model.Save(Path("m.onnx"));
  for (const std::string backend : {"cpu", "torch"}) {
    const Outcome o = RunProcess(StrCat(kTrain, "--quiet --overwrite --out r --backend ", backend));
    ASSERT_EQ(o.code, 0) << o.err;
    const std::string warning = "update 20: the gradient of every trained weight is exactly 0";
    EXPECT_NE(o.err.find(warning), std::string::npos) << o.err;
    EXPECT_EQ(o.err.find("exactly 0"), o.err.rfind("exactly 0")) << o.err;
  }
}

}  // namespace
}  // namespace onnxtrain
