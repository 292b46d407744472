// bf16 and fp16 train as float32 does: LeNet on MNIST and an encoder of two layers, through the program.
//
// Trajectories of one seed part by rounding alone, as those of different seeds do, and a single evaluation is then as
// far from another as chance has it. What must agree are means: of the curve, which is averaged over windows of 100
// steps, and of the evaluations of several seeds.
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "frontend/base/strings.h"
#include "tests/paths.h"
#include "tests/shared_files.h"
#include "tests/tools/scratch.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

constexpr double kLoss = 0.02, kAccuracy = 0.003;  // relative; absolute

struct Training {
  std::vector<double> curve;  // mean loss of every 100 steps
  double loss, accuracy;      // of the evaluation at the end
};

double Mean(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

class PrecisionTraining : public Scratch {
 protected:
  PrecisionTraining() {
    const std::string command = StrCat("/usr/bin/python3 ", RepoPath("tests/tools/export_models.py"), " ", folder_);
    EXPECT_EQ(std::system(command.c_str()), 0) << "python3-torch is needed";
  }

  Training Train(const std::string& what, const std::string& precision, int seed) const {
    const Outcome o =
        Run(StrCat(what, " --batch-size 64 --lr-scheduler cosine --log-every 100 --quiet --overwrite --out r --seed ",
                   seed, " --mixed-precision ", precision));
    EXPECT_EQ(o.code, 0) << o.err;
    Training t{};
    std::istringstream lines(ReadAll(Path("r/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);) {
      const Json event = Json::parse(line);
      if (event["event"] == "step") t.curve.push_back(event["loss"]);
    }
    const Json summary = Json::parse(ReadAll(Path("r/summary.json")));
    EXPECT_EQ(summary["precision"], precision == "no" ? "float32" : precision);
    t.loss = summary["eval"]["loss"];
    t.accuracy = summary["eval"]["accuracy"];
    return t;
  }

  std::vector<Training> TrainAll(const std::string& what, const std::string& precision, int seeds) const {
    std::vector<Training> all;
    for (int seed = 1; seed <= seeds; ++seed) all.push_back(Train(what, precision, seed));
    return all;
  }

  void ExpectHalvesAgree(const std::string& what, int seeds) const {
    const std::vector<Training> want = TrainAll(what, "no", seeds);
    for (const char* precision : {"bf16", "fp16"}) ExpectAgree(want, TrainAll(what, precision, seeds), precision);
  }

  static void ExpectAgree(const std::vector<Training>& want, const std::vector<Training>& got,
                          const std::string& precision) {
    std::vector<double> losses, accuracies, global_batches, curves;
    for (size_t s = 0; s < want.size(); ++s) {
      losses.push_back(got[s].loss / want[s].loss - 1);
      accuracies.push_back(got[s].accuracy - want[s].accuracy);
      ASSERT_EQ(got[s].curve.size(), want[s].curve.size());
      curves.push_back(Mean(got[s].curve) / Mean(want[s].curve) - 1);
      EXPECT_NEAR(got[s].curve[0], want[s].curve[0], kLoss * want[s].curve[0])
          << precision << ", before the trajectories part";
    }
    for (size_t w = 0; w < want[0].curve.size(); ++w) {
      std::vector<double> ratios;
      for (size_t s = 0; s < want.size(); ++s) ratios.push_back(got[s].curve[w] / want[s].curve[w] - 1);
      global_batches.push_back(std::abs(Mean(ratios)));
    }
    EXPECT_LE(std::abs(Mean(curves)), kLoss) << precision;
    EXPECT_LE(Mean(global_batches), kLoss) << precision;
    EXPECT_LE(std::abs(Mean(losses)), kLoss) << precision;
    EXPECT_LE(std::abs(Mean(accuracies)), kAccuracy) << precision;
    EXPECT_GT(std::abs(losses[0]), 0) << precision << " rounds";
    std::printf("%s: evaluation loss %+.4f, accuracy %+.4f, curve %+.4f, its windows off by %.4f\n", precision.c_str(),
                Mean(losses), Mean(accuracies), Mean(curves), Mean(global_batches));
  }
};

TEST_F(PrecisionTraining, LeNet) {
  SKIP_WITHOUT_SHARED("data/mnist_idx");
  const std::string data = SharedPath("data/mnist_idx");
  ExpectHalvesAgree(StrCat("--model lenet.onnx --data ", data, " --normalize unit --lr 1e-3 --epochs 1"), 3);
}

TEST_F(PrecisionTraining, Encoder) {
  ExpectHalvesAgree("--model encoder.onnx --data train.npz --eval-data test.npz --lr 1e-3 --epochs 2", 1);
}

}  // namespace
}  // namespace onnxtrain
