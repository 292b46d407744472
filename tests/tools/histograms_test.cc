// --histogram-every: distributions of weights and gradients for TensorBoard.
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "frontend/base/strings.h"
#include "frontend/data/sources/numpy.h"
#include "tests/tools/blobs.h"
#include "tests/tools/event_records.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

class Histograms : public Scratch {
 protected:
  Histograms() {
    tiny::Model m;
    m.nodes = {{"MatMul", {"x", "w1"}, {"h0"}},
               {"Tanh", {"h0"}, {"h1"}},
               {"Dropout", {"h1"}, {"h"}},
               {"MatMul", {"h", "w2"}, {"y"}}};
    m.weights = {{"w1", {4, 16}, tiny::Uniform(64, 0.5f, 1)}, {"w2", {16, 3}, tiny::Uniform(48, 0.5f, 2)}};
    m.Save(Path("m.onnx"));
    EXPECT_TRUE(WriteNpz(Path("d.npz"), Blobs(60)).ok());
  }

  static constexpr const char* kTrain =
      "--model m.onnx --data d.npz --batch-size 10 --max-steps 7 --log-every 1 --dropout 0.3 --quiet --overwrite ";

  // By step and tag.
  std::map<int64_t, std::map<std::string, DecodedHistogram>> Read(const std::string& run) const {
    std::map<int64_t, std::map<std::string, DecodedHistogram>> found;
    for (const ProtoFields& event : ReadEvents(Path(run + "/tensorboard"))) {
      if (!event.contains(5)) continue;
      const ProtoFields summary = Decode(Only(event, 5).bytes);
      for (auto [at, end] = summary.equal_range(1); at != end; ++at) {
        const ProtoFields value = Decode(at->second.bytes);
        if (value.contains(5))
          found[static_cast<int64_t>(Only(event, 2).number)].emplace(Only(value, 1).bytes,
                                                                     DecodeHistogram(Only(value, 5).bytes));
      }
    }
    return found;
  }

  std::map<int64_t, double> GradientNorms(const std::string& run) const {
    std::map<int64_t, double> norms;
    std::istringstream lines(ReadAll(Path(run + "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);) {
      const Json row = Json::parse(line);
      if (row["event"] == "step") norms[row["step"]] = row["grad_norm"];
    }
    return norms;
  }
};

// Their gradients are those of the update, and computing them changes nothing.
TEST_F(Histograms, AreThoseOfTheUpdate) {
  for (const std::string flags : {"", "--micro-batch-size 5", "--backend torch", "--mixed-precision fp16"}) {
    ASSERT_EQ(Run(StrCat(kTrain, "--out a ", flags)).code, 0) << flags;
    const Outcome run = Run(StrCat(kTrain, "--out b --histogram-every 3 ", flags));
    ASSERT_EQ(run.code, 0) << flags << run.err;
    EXPECT_EQ(ReadAll(Path("a/model.onnx")), ReadAll(Path("b/model.onnx"))) << flags;
    const auto found = Read("b");
    ASSERT_EQ(found.size(), 3) << flags;
    const auto norms = GradientNorms("b");
    for (const int64_t step : {1, 3, 6}) {
      double squares = 0;
      for (const char* weight : {"w1", "w2"}) {
        EXPECT_EQ(found.at(step).at(StrCat("weights/", weight)).count, weight[1] == '1' ? 64 : 48);
        squares += found.at(step).at(StrCat("gradients/", weight)).sum_squares;
      }
      EXPECT_NEAR(std::sqrt(squares), norms.at(step), 1e-4 * norms.at(step)) << flags << " at " << step;
    }
    EXPECT_NEAR(found.at(1).at("weights/w1").max, 0.5, 0.1);
  }
}

TEST_F(Histograms, NoneWithoutTheFlag) {
  ASSERT_EQ(Run(StrCat(kTrain, "--out a")).code, 0);
  EXPECT_TRUE(Read("a").empty());
  EXPECT_NE(Run(StrCat(kTrain, "--out b --histogram-every x")).err.find("--histogram-every"), std::string::npos);
}

}  // namespace
}  // namespace onnxtrain
