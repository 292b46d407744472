// Runs of several processes on a small model with dropout, and its data.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/tools/blobs.h"
#include "tests/tools/run_scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {

class RunOfRanks : public RunScratch {
 protected:
  RunOfRanks() {
    tiny::Model m = tiny::Mlp(3);
    m.nodes[3].inputs[0] = "dropped";
    m.nodes.insert(m.nodes.begin() + 3, {"Dropout", {"h"}, {"dropped"}});
    m.Save(Path("m.onnx"));
    EXPECT_TRUE(WriteNpz(Path("d.npz"), Blobs(50)).ok());
    EXPECT_TRUE(WriteNpz(Path("e.npz"), Blobs(23, {.seed = 8})).ok());
  }

  void SetUp() override {
    if (!std::filesystem::exists(ONNXTRAIN_BINARY_DIR "/lib/libonnxtrain_comm.so"))
      GTEST_SKIP() << "built without libtorch (ONNXTRAIN_TORCH)";
  }

  std::vector<double> Losses(const std::string& run) const {
    std::vector<double> losses;
    for (const auto& event : Metrics(run)) losses.push_back(event[event["event"] == "eval" ? "eval_loss" : "loss"]);
    return losses;
  }

  void ExpectSameRun(const std::string& one, const std::string& other) const {
    const std::vector<double> a = Losses(one), b = Losses(other);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << "event " << i;
  }
};

}  // namespace onnxtrain
