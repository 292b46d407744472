// Trains the exports of PyTorch in tests/models/exports and compares each of 20 losses, and the outputs of the exported
// model, with what PyTorch gave from the same weights on the same batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "frontend/base/status.h"
#include "frontend/data/sources/numpy.h"
#include "tests/paths.h"
#include "tests/tools/scratch.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

struct ExportSpec {
  std::string file;  // NAME.VARIANT; NAME.data.npz and NAME.expected.npz lie beside it
  std::string flags = {};
};

std::ostream& operator<<(std::ostream& out, const ExportSpec& spec) { return out << spec.file; }

std::vector<ExportSpec> ExportSpecs() {
  return {{"scalars.ts"},
          {"scalars.dy"},
          // The older exporter stores the matrix of two layers twice.
          {"shared.ts", "--tie i.weight=h.weight"},
          {"shared.dy"},
          {"llama.ts"},
          {"llama.dy"},
          {"speech.ts"},
          {"speech.dy"},
          {"recurrent.ts"},
          {"unet.tst"},
          {"unet.dyt"},
          {"mobile.tst"},
          {"mobile.dyt"},
          {"translator.ts"},
          {"vision.ts"},
          {"padded.ts"},
          {"padded.dy"}};
}

std::string ExportPath(const std::string& file) { return RepoPath("tests/models/exports/" + file); }

class ExportTest : public Scratch, public testing::WithParamInterface<ExportSpec> {
 protected:
  std::string File(const std::string& ending) const {
    return ExportPath(GetParam().file.substr(0, GetParam().file.find('.')) + ending);
  }

  HostTensor Expected(const std::string& name) const {
    const auto arrays = ReadNpz(File(".expected.npz"));
    EXPECT_TRUE(arrays.ok()) << arrays.status();
    const auto found = std::ranges::find(*arrays, name, [](const auto& array) { return array.first; });
    return found == arrays->end() ? HostTensor() : found->second;
  }

  void CompareTrained() {
    const Outcome o = Run("inspect --json --model " + ExportPath(GetParam().file + ".onnx ") + GetParam().flags);
    ASSERT_EQ(o.code, 0) << o.err;
    const Json page = Json::parse(o.out);
    int64_t trained = 0;
    for (const Json& weight : page["weights"]) {
      int64_t size = 1;
      for (const int64_t extent : weight["shape"]) size *= extent;
      trained += weight["trained"].get<bool>() ? size : 0;
    }
    EXPECT_EQ(trained, Expected("trained").IntAt(0));
  }

  void CompareLosses() {
    const Outcome o = Run(StrCat("--model ", ExportPath(GetParam().file + ".onnx"), " --data ", File(".data.npz"),
                                 " --label label --batch-size 4 --no-shuffle --max-steps 20 --log-every 1 --optimizer "
                                 "sgd --momentum 0.9 --lr 0.02 --threads 1 --out r ",
                                 GetParam().flags));
    ASSERT_EQ(o.code, 0) << o.err;
    const HostTensor expected = Expected("losses");
    std::istringstream lines(ReadAll(Path("r/metrics.jsonl")));
    int64_t step = 0;
    for (std::string line; std::getline(lines, line);) {
      const Json event = Json::parse(line);
      if (event.value("event", "") != "step") continue;
      ASSERT_LT(step, expected.size());
      const double loss = expected.At(step);
      EXPECT_NEAR(event["loss"].get<double>(), loss, 2e-5 * std::fabs(loss)) << "step " << step + 1;
      ++step;
    }
    EXPECT_EQ(step, expected.size());
  }

  // Of the exported model, evaluated in inference mode.
  void CompareOutputs() {
    const Outcome o = Run(StrCat("grad --model r/model.onnx --data ", File(".data.npz"), " --label label ",
                                 "--out g.npz ", HasNorms() ? "--batch-norm frozen" : ""));
    ASSERT_EQ(o.code, 0) << o.err;
    const auto arrays = ReadNpz(Path("g.npz"));
    ASSERT_TRUE(arrays.ok()) << arrays.status();
    const auto y = std::ranges::find(*arrays, "y", [](const auto& array) { return array.first; });
    ASSERT_NE(y, arrays->end());
    const HostTensor expected = Expected("y");
    ASSERT_EQ(y->second.shape(), expected.shape());
    double difference = 0, largest = 0;
    for (int64_t i = 0; i < expected.size(); ++i) {
      difference = std::max(difference, std::fabs(y->second.At(i) - expected.At(i)));
      largest = std::max(largest, std::fabs(expected.At(i)));
    }
    EXPECT_LE(difference, 1e-4 * largest);
  }

 private:
  bool HasNorms() const {
    const Outcome o = Run("inspect --json --model r/model.onnx");
    return Json::parse(o.out)["operators"].contains("BatchNormalization");
  }
};

TEST_P(ExportTest, TrainsAsInPyTorch) {
  CompareTrained();
  CompareLosses();
  if (!HasFatalFailure()) CompareOutputs();
}

INSTANTIATE_TEST_SUITE_P(PyTorch, ExportTest, testing::ValuesIn(ExportSpecs()), [](const auto& info) {
  std::string name = info.param.file;
  std::ranges::replace(name, '.', '_');
  return name;
});

}  // namespace
}  // namespace onnxtrain
