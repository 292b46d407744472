// Update rules against PyTorch's trajectories in float64.
#include <cmath>
#include <cstdlib>

#include "frontend/base/strings.h"
#include "frontend/data/npz.h"
#include "tests/optim/replay.h"

namespace onnxtrain {
namespace {

struct Case {
  const char* name;
  OptimizerSpec spec;
  double decay;
};

const Case kCases[] = {
    {"sgd", {.rule = "sgd", .lr = 0.05, .max_grad_norm = 0}, 0.01},
    {"sgd_momentum", {.rule = "sgd", .lr = 0.05, .momentum = 0.9, .max_grad_norm = 0}, 0.01},
    {"sgd_dampened", {.rule = "sgd", .lr = 0.05, .momentum = 0.8, .dampening = 0.3, .max_grad_norm = 0}, 0},
    {"sgd_nesterov", {.rule = "sgd", .lr = 0.05, .momentum = 0.9, .nesterov = true, .max_grad_norm = 0}, 0},
    {"adam", {.rule = "adam", .lr = 0.01, .max_grad_norm = 0}, 0.1},
    {"adamw", {.rule = "adamw", .lr = 0.01, .max_grad_norm = 0}, 0.1},
    {"rmsprop", {.rule = "rmsprop", .lr = 0.01, .max_grad_norm = 0}, 0.01},
    {"rmsprop_momentum", {.rule = "rmsprop", .lr = 0.01, .momentum = 0.9, .max_grad_norm = 0}, 0},
    {"adagrad", {.rule = "adagrad", .lr = 0.1, .max_grad_norm = 0}, 0.01},
};

Vector Row(const HostTensor& matrix, int64_t row) {
  Vector values(matrix.shape()[1]);
  for (size_t i = 0; i < values.size(); ++i) values[i] = matrix.At(row * matrix.shape()[1] + static_cast<int64_t>(i));
  return values;
}

std::map<std::string, HostTensor> Recorded() {
  const std::string path = std::string(ONNXTRAIN_BINARY_DIR) + "/torch_rules.npz";
  const std::string command =
      StrCat("/usr/bin/python3 ", ONNXTRAIN_SOURCE_DIR, "/tests/optim/torch_rules.py '", path, "'");
  EXPECT_EQ(std::system(command.c_str()), 0) << "it needs Debian's python3-torch and python3-numpy";
  auto arrays = ReadNpz(path);
  EXPECT_TRUE(arrays.ok()) << arrays.status();
  return {arrays->begin(), arrays->end()};
}

TEST(TorchRules, TrajectoriesAreEqual) {
  const auto recorded = Recorded();
  const HostTensor &start = recorded.at("start"), &gradients = recorded.at("gradients");
  for (const Case& c : kCases) {
    for (const char* backend : {"cpu", "torch"}) {
      Vector first(start.size());
      for (int64_t i = 0; i < start.size(); ++i) first[i] = start.At(i);
      Replay replay(backend, {DType::kFloat64, c.spec, {}}, c.decay, start.shape(), first);
      for (int64_t t = 0; t < gradients.shape()[0]; ++t) {
        replay.Step(Row(gradients, t));
        const HostTensor got = replay.Param();
        const Vector want = Row(recorded.at(c.name), t);
        for (size_t i = 0; i < want.size(); ++i) {
          ASSERT_NEAR(got.At(static_cast<int64_t>(i)), want[i], 1e-12 * std::max(1.0, std::fabs(want[i])))
              << c.name << " on " << backend << " step " << t;
        }
      }
    }
  }
}

}  // namespace
}  // namespace onnxtrain
