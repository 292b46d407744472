// Programs of many sizes: their code is counted, and a memory budget evicts the ones that were not used for long.
#include <gtest/gtest.h>

#include "backends/registry.h"
#include "optim/step/session.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

constexpr int64_t kLengths = 24, kWidth = 16, kSamples = 4;

class ProgramEviction : public Scratch {
 protected:
  // x[batch,length,width] → width → mean over the length.
  ProgramEviction() : backend_(CreateBackend("cpu", {.threads = 1}).value()) {
    tiny::Model m{.input_shape = {-1, -2, kWidth}};
    m.nodes = {{"MatMul", {"x", "w"}, {"h"}},
               {"Relu", {"h"}, {"r"}},
               {"ReduceMean", {"r"}, {"y"}, {{"axes", {1}}}, {{"keepdims", 0}}}};
    m.weights = {{"w", {kWidth, kWidth}, tiny::Uniform(kWidth * kWidth, 0.5F, 1)}};
    m.Save(Path("m.onnx"));
  }

  std::unique_ptr<Session> MakeSession(int64_t budget) {
    SessionOptions options{
        .labels = {.present = true, .sample = {DType::kInt64, {}}, .min_value = 0, .max_value = kWidth - 1},
        .variable_inputs = {{"x", 1}},
        .micro_batch = kSamples,
        .recompute = {.memory_budget = budget}};
    options.import.input_shapes["x"] = {-1, kLengths, kWidth};
    auto session = Session::Create(OnnxModel::Load(Path("m.onnx")).value(), backend_.get(), options);
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }

  // Returns the loss of an update.
  static double Train(Session& session, int64_t length) {
    const Type type{DType::kFloat32, {kSamples, length, kWidth}};
    HostTensor x(type), labels({DType::kInt64, {kSamples}});
    for (int64_t i = 0; i < x.size(); ++i) x.Set(i, static_cast<double>((i * 7 + length) % 11) / 11);
    for (int64_t i = 0; i < kSamples; ++i) labels.Set(i, static_cast<double>((i + length) % kWidth));
    EXPECT_TRUE(session.Step({{"x", x}, {kLabelFeed, labels}}).ok());
    return session.Report()->loss;
  }

  std::unique_ptr<Backend> backend_;
};

TEST_F(ProgramEviction, ABudgetHoldsForManySizes) {
  const auto free = MakeSession(0);
  std::vector<double> losses = {Train(*free, kLengths)};
  const int64_t one = free->memory().total();
  for (int round = 0; round < 2; ++round) {
    for (int64_t length = 1; length <= kLengths; ++length) losses.push_back(Train(*free, length));
  }
  const int64_t all = free->memory().total();
  EXPECT_GT(all, one + kLengths * (64 << 10)) << "code of every size";

  const int64_t budget = (one + all) / 2;
  const auto limited = MakeSession(budget);
  EXPECT_EQ(Train(*limited, kLengths), losses[0]);
  for (size_t i = 1; i < losses.size(); ++i) {
    const int64_t length = static_cast<int64_t>(i - 1) % kLengths + 1;
    EXPECT_EQ(Train(*limited, length), losses[i]) << length;
    EXPECT_LE(limited->memory().total(), budget) << length;
  }
  EXPECT_LT(limited->Profile().size(), free->Profile().size());
  EXPECT_GT(limited->Profile().size(), 4) << "what fits stays";
}

}  // namespace
}  // namespace onnxtrain
