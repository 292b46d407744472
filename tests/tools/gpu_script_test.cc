// tools/bench/gpu.sh without a GPU, and that the rule by which it judges losses finds wrong gradients.
#include <nlohmann/json.hpp>

#include "frontend/base/strings.h"
#include "tests/paths.h"
#include "tests/tools/run_scratch.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

const std::string kPython = "/usr/bin/python3 ", kBench = RepoPath("tools/bench/");

class GpuScript : public RunScratch {
 protected:
  int System(const std::string& command) const {
    const int status = std::system(StrCat("cd '", folder_, "' && ", command, " >>log 2>&1").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // MODEL.onnx of tools/bench/models.py, with weights that moved by `ulps`.
  void Export(const std::string& model, const std::string& file, int ulps = 0) const {
    ASSERT_EQ(System(StrCat(kPython, kBench, "models.py ", model, " ", file, " 0 '' ", ulps)), 0)
        << ReadAll(Path("log"));
  }

  // A run of 20 updates of LeNet.
  void Train(const std::string& out, int ulps = 0, const std::string& flags = "") {
    Export("lenet", "lenet.onnx", ulps);
    const Outcome run = Run(StrCat("--model lenet.onnx --batch-size 8 --seed 1 --log-every 1 --max-steps 20 --out ",
                                   out, " --backend cpu ", flags));
    ASSERT_EQ(run.code, 0) << run.err;
  }

  // Exit code of the rule for losses, with the nudged runs that gpu.sh makes.
  int CompareLosses(const std::string& other) const {
    return System(StrCat(kPython, kBench, "compare_losses.py run/metrics.jsonl ", other,
                         "/metrics.jsonl 1e-4 up/metrics.jsonl down/metrics.jsonl"));
  }

  // Exit code of the rule for gradients of ResNet-18, if the GPU computed this one `factor` times as large.
  int CompareGradients(const std::string& weight, double factor) const {
    WriteAll(Path("scale.py"), StrCat("import numpy as n\na = dict(n.load('right.npz'))\na['grad:", weight,
                                      "'] *= n.float32(", factor, ")\nn.savez('scaled.npz', **a)\n"));
    EXPECT_EQ(System(StrCat(kPython, "scale.py")), 0) << ReadAll(Path("log"));
    return Run("compare --model resnet18.onnx --batch-size 2 --seed 1 --backend torch --reference scaled.npz").code;
  }
};

TEST_F(GpuScript, RunsEveryPartWithoutAGpu) {
  for (const char* program : {"tests_ops", "tests_optim", "tests_backends_torch_fuse"}) {
    if (!std::filesystem::exists(BinaryPath(StrCat("bin/", program)))) GTEST_SKIP() << "no " << program;
  }
  const int code =
      System(StrCat("PYTHON=/usr/bin/python3 ", kBench, "gpu.sh --dry-run ", BinaryPath(), " '", Path("results"), "'"));
  ASSERT_EQ(code, 0) << ReadAll(Path("log"));
  const Json results = Json::parse(ReadAll(Path("results/gpu.json")));
  std::vector<std::string> parts;
  for (const Json& part : results["parts"]) {
    parts.push_back(part["part"]);
    EXPECT_EQ(part["exit_code"], 0) << part;
  }
  EXPECT_EQ(parts, (std::vector<std::string>{"generated_0", "generated_1", "gradients_lenet", "losses_lenet",
                                             "memory_flags", "operators_0", "operators_1", "prepare_lenet", "resume",
                                             "rules", "speed_lenet", "tf32"}));
  EXPECT_EQ(results["speed"][0]["case"], "lenet");
  EXPECT_TRUE(results["speed"][0]["ratios"].contains("bf16")) << results["speed"];
  for (const char* part : {"operators_0", "operators_1", "generated_0", "generated_1", "rules"}) {
    const std::string log = ReadAll(Path(StrCat("results/", part, ".log")));
    EXPECT_EQ(log.find("0 tests from 0"), std::string::npos) << log;
  }
  const std::string losses = ReadAll(Path("results/losses_lenet.log"));
  EXPECT_NE(losses.find("/lenet-16: model"), std::string::npos) << losses;
}

TEST_F(GpuScript, FailsWherePartsFail) {
  std::filesystem::create_directories(Path("empty/bin"));
  EXPECT_EQ(System(StrCat("PYTHON=/usr/bin/python3 ", kBench, "gpu.sh --dry-run '", Path("empty"), "' '",
                          Path("results"), "'")),
            1);
  for (const Json& part : Json::parse(ReadAll(Path("results/gpu.json")))["parts"]) {
    const bool needs_nothing = part["part"] == "tf32" || part["part"] == "prepare_lenet";  // a CPU has no TF32
    EXPECT_EQ(part["exit_code"] == 0, needs_nothing) << part;
  }
  EXPECT_EQ(System(StrCat("PYTHON=/usr/bin/python3 ", kBench, "gpu.sh --dry-run nothing results")), 1);
  EXPECT_NE(ReadAll(Path("log")).find("there is no nothing: make it with tools/bench/pack_gpu.sh"), std::string::npos);
}

TEST_F(GpuScript, LossesFindAMissingGradient) {
  Train("run");
  Train("up", 16);
  Train("down", -16);
  Train("other", 3);
  EXPECT_EQ(CompareLosses("other"), 0) << "rounding is no fault\n" << ReadAll(Path("log"));
  Train("wrong", 0, "--freeze 3.bias");
  EXPECT_EQ(CompareLosses("wrong"), 1) << ReadAll(Path("log"));
}

// ResNet-18 turns rounding into the largest differences of all models that the script trains: the losses of 20 updates
// hide that its last bias is not trained.
TEST_F(GpuScript, GradientsFindAWrongOneBehindRounding) {
  Export("resnet18", "resnet18.onnx");
  ASSERT_EQ(Run("grad --model resnet18.onnx --batch-size 2 --seed 1 --backend torch --out right.npz").code, 0);
  EXPECT_EQ(CompareGradients("fc.bias", 1), 0);
  EXPECT_EQ(CompareGradients("fc.bias", 1.01), 2);
  EXPECT_EQ(CompareGradients("blocks.0.body.2.1.bias", 1.1), 2) << "the one that rounding changes most";
}

}  // namespace
}  // namespace onnxtrain
