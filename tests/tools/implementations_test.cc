// No step of a benchmark model runs a reference implementation of oneDNN, and hardly any of its time goes to kernels of
// ours that are plain loops.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/paths.h"
#include "tests/tools/scratch.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

// Most of a step's time that scalar kernels may take.
constexpr double kMaxScalarShare = 0.02;

// Operators whose kernels are oneDNN primitives, vector code or plain copies of memory; elementwise ones beside.
const std::set<std::string> kVectorized = {"MatMul",        "Transpose",
                                           "Reshape",       "Expand",
                                           "Concat",        "Split",
                                           "Slice",         "SliceGrad",
                                           "Pad",           "ReduceSum",
                                           "ReduceMean",    "ReduceMax",
                                           "Softmax",       "SoftmaxGrad",
                                           "LogSoftmax",    "LogSoftmaxGrad",
                                           "LayerNorm",     "LayerNormGrad",
                                           "RmsNorm",       "RmsNormGrad",
                                           "CrossEntropy",  "CrossEntropyGrad",
                                           "SquaredNorm",   "Gather",
                                           "GatherGrad",    "Resample",
                                           "ResampleGrad",  "Cast",
                                           "Add",           "Sub",
                                           "Mul",           "Div",
                                           "Relu",          "Where",
                                           "Greater",       "Less",
                                           "Gelu",          "GeluGrad",
                                           "Tanh",          "Exp",
                                           "Sqrt",          "Erf",
                                           "Conv",          "ConvTranspose",
                                           "BatchNorm",     "BatchNormGrad",
                                           "ConvWeightGrad"};

bool IsScalar(const std::string& op) { return !op.starts_with("cpu.") && !kVectorized.contains(op); }

struct BenchCase {
  std::string name;  // of tools/bench/models.py
  int batch;
  std::string precision = "no";  // --mixed-precision
};
std::ostream& operator<<(std::ostream& out, const BenchCase& c) { return out << c.name << " " << c.precision; }

class Implementations : public Scratch, public testing::WithParamInterface<BenchCase> {};

// "onednn_verbose,exec,cpu,convolution,brgconv:avx512_core,…"
std::map<std::string, std::string> References(const std::string& verbose) {
  std::map<std::string, std::string> found;
  std::istringstream lines(verbose);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("onednn_verbose,exec,")) continue;
    std::istringstream fields(line);
    std::string field[5];
    for (std::string& f : field) std::getline(fields, f, ',');
    if (field[4].find("ref") != std::string::npos) found[field[3] + " " + field[4]] = line;
  }
  return found;
}

TEST_P(Implementations, AreFast) {
  const BenchCase& c = GetParam();
  const std::string models = RepoPath("tools/bench/models.py");
  ASSERT_EQ(std::system(("/usr/bin/python3 " + models + " " + c.name + " '" + Path("m.onnx") + "'").c_str()), 0);
  const std::string flags = "bench --model m.onnx --max-steps 2 --backend cpu --json --batch-size " +
                            std::to_string(c.batch) + " --mixed-precision " + c.precision;
  const Outcome verbose = RunProcess(flags + " --steps-only", "DNNL_VERBOSE=1");
  ASSERT_EQ(verbose.code, 0) << verbose.err;
  EXPECT_NE(verbose.out.find("onednn_verbose,exec,cpu,matmul"), std::string::npos) << "no primitive was named";
  for (const auto& [what, line] : References(verbose.out)) ADD_FAILURE() << what << ": " << line;

  const Outcome timed = RunProcess(flags);
  ASSERT_EQ(timed.code, 0) << timed.err;
  double total = 0, scalar = 0;
  std::string which;
  for (const Json& op : Json::parse(timed.out)["operators"]) {
    total += op["seconds"].get<double>();
    if (!IsScalar(op["op"])) continue;
    scalar += op["seconds"].get<double>();
    which += op["op"].get<std::string>() + " ";
  }
  EXPECT_LE(scalar, kMaxScalarShare * total) << which;
}

INSTANTIATE_TEST_SUITE_P(Bench, Implementations,
                         testing::Values(BenchCase{"mlp", 64}, BenchCase{"lenet", 64}, BenchCase{"resnet18", 2},
                                         BenchCase{"unet", 2}, BenchCase{"bert4", 1}, BenchCase{"lenet", 64, "bf16"},
                                         BenchCase{"resnet18", 2, "bf16"}, BenchCase{"unet", 2, "bf16"}),
                         [](const auto& info) {
                           return info.param.name + (info.param.precision == "no" ? "" : "_" + info.param.precision);
                         });

}  // namespace
}  // namespace onnxtrain
