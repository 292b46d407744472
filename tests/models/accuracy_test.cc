// Accuracies on MNIST: of the shared models as they are, and of the trainings that docs/benchmarks.md quotes.
#include <cmath>
#include <nlohmann/json.hpp>

#include "frontend/base/status.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/data/sources/rows.h"
#include "tests/paths.h"
#include "tests/shared_files.h"
#include "tests/tools/scratch.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

constexpr int64_t kImages = 2000;  // the first of the test set
constexpr const char* kBackends[] = {"cpu", "torch"};

struct Trained {
  const char* file;
  Shape sample;
  double scale, mean, deviation;  // of a pixel: (scale · p − mean) / deviation
  double accuracy;
};

// ../shared/README.md names these accuracies to a tenth or a twentieth of a percent: to one image of 2,000.
const Trained kTrained[] = {
    {"mnist_cntk_opset8", {1, 28, 28}, 1, 0, 1, 0.984},
    {"cnn_mnist_pytorch_opset9", {1, 28, 28}, 1, 0, 1, 0.9865},
    {"mnist_burn_bn_opset16", {1, 28, 28}, 1 / 255.0, 0.1307, 0.3081, 0.988},
    {"keras_mnist_cnn_opset12", {28, 28, 1}, 1 / 255.0, 0, 1, 0.973},
    {"mnist_softmax_tf_opset4", {784}, 1 / 255.0, 0, 1, 0.889},
};

HostTensor MnistTest(const std::string& part) {
  auto tensor = ReadIdx(SharedPath("data/mnist_idx/t10k-" + part + "-ubyte.gz"), int64_t{1} << 30);
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  return tensor.ok() ? *tensor : HostTensor({DType::kUInt8, {10000, 28, 28}});
}

class Accuracy : public Scratch {
 protected:
  void SaveImages(const Trained& t) const {
    static const HostTensor kDigits = MnistTest("images-idx3"), kLabels = MnistTest("labels-idx1");
    Shape shape = t.sample;
    shape.insert(shape.begin(), kImages);
    HostTensor x({DType::kFloat32, shape}), y({DType::kInt64, {kImages}});
    for (int64_t i = 0; i < x.size(); ++i) x.Set(i, (t.scale * kDigits.At(i) - t.mean) / t.deviation);
    for (int64_t i = 0; i < kImages; ++i) y.SetInt(i, kLabels.IntAt(i));
    ASSERT_TRUE(WriteNpz(Path("test.npz"), {{"x", x}, {"label", y}}).ok());
  }

  // Of what a command prints as JSON.
  Json Printed(const std::string& line) const {
    const Outcome o = Run(line + " --json --quiet");
    EXPECT_EQ(o.code, 0) << line << ": " << o.err;
    return Json::parse(o.out, nullptr, false);
  }
};

TEST_F(Accuracy, OfTheSharedModelsAsTheyAre) {
  SKIP_WITHOUT_SHARED("models");
  SKIP_WITHOUT_SHARED("data/mnist_idx");
  for (const Trained& t : kTrained) {
    SaveImages(t);
    for (const char* backend : kBackends) {
      const Json result = Printed(
          StrCat("eval --model ", SharedPath("models"), "/", t.file,
                 ".onnx --data test.npz --label label --batch-size 500 --loss cross_entropy --backend ", backend));
      ASSERT_TRUE(result.is_object()) << t.file;
      EXPECT_NEAR(result["accuracy"].get<double>(), t.accuracy, 1.01 / kImages) << t.file << " on " << backend;
    }
  }
}

// docs/benchmarks-runs.md: two epochs from random weights.
TEST_F(Accuracy, OfTheTrainingsThatTheReadmeQuotes) {
  SKIP_WITHOUT_SHARED("data/mnist_idx");
  const std::string scripts = RepoPath();
  ASSERT_EQ(std::system(StrCat("/usr/bin/python3 ", scripts, "/tests/tools/export_models.py ", folder_).c_str()), 0);
  ASSERT_EQ(std::system(StrCat("/usr/bin/python3 ", scripts, "/tools/make_cnn.py ", Path("cnn.onnx")).c_str()), 0);
  const struct {
    const char* model;
    double accuracy;
  } kRuns[] = {{"lenet", 0.98}, {"cnn", 0.98}};
  for (const auto& run : kRuns) {
    for (const char* backend : kBackends) {
      const Json result =
          Printed(StrCat("--model ", run.model, ".onnx --data ", SharedPath("data/mnist_idx"),
                         " --epochs 2 --lr 2e-3 --batch-size 64 --overwrite --out r --backend ", backend));
      ASSERT_TRUE(result.is_object()) << run.model;
      const double accuracy = result["eval"]["accuracy"];
      std::printf("%s on %s: %.2f %% of the test images\n", run.model, backend, 100 * accuracy);
      EXPECT_GE(accuracy, run.accuracy) << run.model << " on " << backend;
    }
  }
}

}  // namespace
}  // namespace onnxtrain
