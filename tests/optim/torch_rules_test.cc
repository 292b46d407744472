// Update rules and a schedule against PyTorch's trajectories in float64, on tensors with a ragged tail.
#include <cmath>
#include <cstdlib>

#include "frontend/base/strings.h"
#include "frontend/data/sources/numpy.h"
#include "tests/optim/replay.h"
#include "tests/paths.h"

namespace onnxtrain {
namespace {

struct Case {
  const char* name;
  OptimizerSpec spec;
  double decay;
  ScheduleSpec schedule = {};
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
    {"sgd_cosine",
     {.rule = "sgd", .lr = 0.05, .momentum = 0.9, .max_grad_norm = 0},
     0,
     {.name = "cosine", .total_steps = 200}},
    {"adagrad", {.rule = "adagrad", .lr = 0.1, .max_grad_norm = 0}, 0.01},
};

// The first `size` elements of a row, or of a vector.
Vector Row(const HostTensor& matrix, int64_t row, int64_t size) {
  Vector values(size);
  for (int64_t i = 0; i < size; ++i) values[i] = matrix.At(row * matrix.shape().back() + i);
  return values;
}

std::map<std::string, HostTensor> Recorded() {
  const std::string path = BinaryPath("torch_rules.npz");
  const std::string command = StrCat("/usr/bin/python3 ", RepoPath("tests/optim/torch_rules.py"), " '", path, "'");
  EXPECT_EQ(std::system(command.c_str()), 0) << "it needs Debian's python3-torch and python3-numpy";
  auto arrays = ReadNpz(path);
  EXPECT_TRUE(arrays.ok()) << arrays.status();
  return {arrays->begin(), arrays->end()};
}

double LargestDifference(const HostTensor& got, const Vector& want) {
  double largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double d = std::fabs(got.At(static_cast<int64_t>(i)) - want[i]) / std::max(1.0, std::fabs(want[i]));
    largest = std::isnan(d) ? INFINITY : std::max(largest, d);
  }
  return largest;
}

struct Way {
  const char* backend;
  DType dtype;
  int64_t size;  // no multiple of a vector; the larger one is longer than a tile
  double tolerance;
};

void ExpectTrajectory(const Case& c, const Way& way, const std::map<std::string, HostTensor>& recorded) {
  const HostTensor& gradients = recorded.at("gradients");
  Replay replay(way.backend, {way.dtype, c.spec, c.schedule}, c.decay, {way.size},
                Row(recorded.at("start"), 0, way.size));
  for (int64_t t = 0; t < gradients.shape()[0]; ++t) {
    replay.Step(Row(gradients, t, way.size));
    ASSERT_LE(LargestDifference(replay.Param(), Row(recorded.at(c.name), t, way.size)), way.tolerance)
        << c.name << " on " << way.backend << " " << ToString(way.dtype) << " of " << way.size << ", step " << t;
  }
}

TEST(TorchRules, TrajectoriesAreEqual) {
  const auto recorded = Recorded();
  for (const Case& c : kCases) {
    for (const char* backend : {"cpu", "torch"}) {
      for (int64_t size : {37, 1031}) {
        ExpectTrajectory(c, {backend, DType::kFloat64, size, 1e-12}, recorded);
        ExpectTrajectory(c, {backend, DType::kFloat32, size, 2e-5}, recorded);
      }
    }
  }
}

}  // namespace
}  // namespace onnxtrain
