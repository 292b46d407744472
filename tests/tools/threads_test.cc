// How many threads a run takes, and what must not depend on it.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "frontend/base/strings.h"
#include "tests/tools/first_cpu.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

constexpr int kClasses = 64;

// Without a product, whose sums oneDNN may cut by the number of threads: x·w + b, Softmax.
tiny::Model Elementwise() {
  tiny::Model m{.input_shape = {-1, kClasses}};
  m.weights.push_back({"w", {kClasses}, tiny::Uniform(kClasses, 0.5f, 1)});
  m.weights.push_back({"b", {kClasses}, tiny::Uniform(kClasses, 0.5f, 2)});
  m.nodes = {{"Mul", {"x", "w"}, {"p"}}, {"Add", {"p", "b"}, {"s"}}, {"Softmax", {"s"}, {"y"}}};
  return m;
}

class Threads : public Scratch {
 protected:
  Threads() { Elementwise().Save(Path("m.onnx")); }

  // What the summary of a run says about the processor: "NAME, N threads".
  std::string Summary(const std::string& flags, const std::string& prefix, int batch = 4096) {
    const Outcome o =
        RunProcess(StrCat("--model m.onnx --backend cpu --max-steps 3 --json --quiet --overwrite --out r --batch-size ",
                          batch, " ", flags),
                   prefix);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? nlohmann::json::parse(o.out)["cpu"].get<std::string>() : "";
  }
};

TEST_F(Threads, FollowFlagEnvironmentAndAffinity) {
  const std::string one_cpu = StrCat("env -u OMP_NUM_THREADS taskset -c ", FirstCpu());
  EXPECT_TRUE(Summary("", one_cpu).ends_with(", 1 thread"));
  EXPECT_TRUE(Summary("", "env OMP_NUM_THREADS=1").ends_with(", 1 thread"));
  EXPECT_TRUE(Summary("--threads 1", "env OMP_NUM_THREADS=3").ends_with(", 1 thread"));
}

TEST_F(Threads, AreNoMoreThanTheCpus) {
  const std::string one_cpu = StrCat("taskset -c ", FirstCpu());
  EXPECT_TRUE(Summary("", one_cpu + " env OMP_NUM_THREADS=40000").ends_with(", 1 thread"));
  EXPECT_TRUE(Summary("--threads 4000", one_cpu).ends_with(", 1 thread"));
  const Outcome o =
      RunProcess("--model m.onnx --max-steps 1 --overwrite --out r", one_cpu + " env OMP_NUM_THREADS=40000");
  EXPECT_THAT(o.err, testing::HasSubstr("OMP_NUM_THREADS 40000: there are 1 CPUs"));
}

// Waking a second thread would take longer than the work. A repeated run takes the number from config.flags.
TEST_F(Threads, AreFewForLittleWork) {
  const std::string open = "env -u OMP_NUM_THREADS";
  EXPECT_TRUE(Summary("", open, 4).ends_with(", 1 thread"));
  EXPECT_NE(ReadAll(Path("r/config.flags")).find("--threads=1\n"), std::string::npos)
      << ReadAll(Path("r/config.flags"));
  EXPECT_TRUE(Summary("--threads 2", open, 4).ends_with(", 2 threads"));
  EXPECT_TRUE(Summary("", "env OMP_NUM_THREADS=2", 4).ends_with(", 2 threads"));
}

TEST_F(Threads, ChangeNoBitOfWhatOurKernelsCompute) {
  Summary("--threads 1", "");
  const std::string one = ReadAll(Path("r/model.synthetic.onnx"));
  ASSERT_FALSE(one.empty());
  ASSERT_NE(one, ReadAll(Path("m.onnx")));
  for (const char* threads : {"2", "3"}) {
    Summary(StrCat("--threads ", threads), "");
    EXPECT_TRUE(ReadAll(Path("r/model.synthetic.onnx")) == one) << threads << " threads";
  }
}

}  // namespace
}  // namespace onnxtrain
