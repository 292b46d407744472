// Models that declare more than any machine has: one line and exit code 1, no signal. So do
// files that vanish under the reader.
#include <algorithm>

#include "frontend/base/strings.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

constexpr int64_t kHuge = int64_t{1} << 33;

class Hostile : public Scratch {
 protected:
  // One product with a weight.
  void SaveProduct(int64_t batch, int64_t width) {
    tiny::Model m{.input_shape = {batch, width}};
    m.nodes = {{"ReduceMean", {"x"}, {"m"}}, {"Mul", {"x", "m"}, {"s"}}, {"MatMul", {"s", "w"}, {"y"}}};
    m.weights = {{"w", {4, 4}, std::vector<float>(16, 0.5f)}};
    m.Save(Path("m.onnx"));
  }

  void Refuses(const std::string& line, const std::string& part, const std::string& prefix = "") {
    const Outcome o = RunProcess(line + " --model m.onnx", prefix);
    EXPECT_EQ(o.code, 1) << line << "\n" << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    EXPECT_NE(o.err.find(part), std::string::npos) << o.err;
  }
};

TEST_F(Hostile, BatchBeyondMemory) {
  SaveProduct(kHuge, 4);
  EXPECT_EQ(RunProcess("inspect --model m.onnx").code, 0);
  Refuses("train --max-steps 1", "MiB of memory are free (--batch-size)");
}

TEST_F(Hostile, SampleBeyondMemory) {
  tiny::Model m{.input_shape = {-1, kHuge}};
  m.nodes = {{"Mul", {"x", "w"}, {"y"}}};
  m.weights = {{"w", {1}, {0.5f}}};
  m.Save(Path("m.onnx"));
  EXPECT_EQ(RunProcess("inspect --model m.onnx").code, 0);
  Refuses("train --max-steps 1 --batch-size 2", "MiB of memory are free");
  Refuses("plan --batch-size 2", "MiB of memory are free");
}

TEST_F(Hostile, ProductWithoutCountableRows) {
  SaveProduct(kHuge, 4);
  const Outcome o = RunProcess("inspect --json --model m.onnx");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("is too large"), std::string::npos) << o.out;
}

TEST_F(Hostile, AModelThatIsTruncatedWhileItIsRead) {
  for (const char* command : {"train", "inspect"}) {
    SaveProduct(4, 4);
    Refuses(command, "was truncated while it was read", WithFaultShim("FAULT_TRUNCATE=m.onnx "));
  }
}

}  // namespace
}  // namespace onnxtrain
