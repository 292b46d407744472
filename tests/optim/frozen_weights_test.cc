// Frozen weights: read in place, without gradients.
#include <gmock/gmock.h>

#include "backends/registry.h"
#include "frontend/base/strings.h"
#include "optim/step/session.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

class FrozenWeights : public Scratch {
 protected:
  FrozenWeights() : backend_(CreateBackend("cpu", {.threads = 1}).value()) {
    tiny::Wide().Save(Path("m.onnx"));
    model_ = OnnxModel::Load(Path("m.onnx")).value();
  }

  std::unique_ptr<Session> Create(std::vector<std::string> frozen, bool plan_only) {
    SessionOptions options{.labels = {.present = true, .sample = {DType::kInt64, {}}, .min_value = 0, .max_value = 15},
                           .micro_batch = 4,
                           .step_form = StepForm::kMicroAndApply,
                           .plan_only = plan_only};
    options.import.input_shapes["x"] = {-1, 1024};
    options.trainable.freeze = std::move(frozen);
    auto session = Session::Create(model_, backend_.get(), options);
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }

  std::unique_ptr<Backend> backend_;
  std::shared_ptr<const OnnxModel> model_;
};

// Counts the products of a training step that reduce over the batch: gradients of weights.
int64_t CountWeightGradients(Session& session) {
  EXPECT_TRUE(session.Plan(4).ok());
  int64_t count = 0;
  for (const ProgramProfile& program : session.Profile()) {
    if (program.name != "micro_first") continue;
    for (const Node& node : program.program->graph().nodes())
      count += node.op.ends_with("MatMul") && node.attrs.Int("trans_a") != 0;
  }
  return count;
}

TEST_F(FrozenWeights, AreReadInPlaceWhereTheFileIsAligned) {
  for (const bool plan_only : {true, false}) {
    const auto session = Create({"w1"}, plan_only);
    const HostTensor& w1 = *model_->Initializer("w1");
    const bool aligned = reinterpret_cast<uintptr_t>(w1.bytes().data()) % sizeof(float) == 0;
    const auto bytes = static_cast<int64_t>(w1.bytes().size());
    const SessionMemory frozen = session->memory(), whole = Create({}, plan_only)->memory();
    EXPECT_EQ(frozen.mapped, aligned ? bytes : 0);
    EXPECT_EQ(frozen.parameters, whole.parameters - (aligned ? bytes : 0));
    EXPECT_EQ(whole.mapped, 0);
  }
}

TEST_F(FrozenWeights, HaveNoGradient) {
  const int64_t all = CountWeightGradients(*Create({}, true));
  EXPECT_EQ(all, 3);
  EXPECT_EQ(CountWeightGradients(*Create({"w1"}, true)), all - 1);
  EXPECT_EQ(CountWeightGradients(*Create({"w[12]"}, true)), all - 2);
}

TEST_F(FrozenWeights, CannotBeSet) {
  const auto session = Create({"w1"}, false);
  const absl::Status status = session->SetWeights({{"w1", *model_->Initializer("w1")}});
  EXPECT_EQ(status.message(), "weight 'w1' is frozen");
}

}  // namespace
}  // namespace onnxtrain
