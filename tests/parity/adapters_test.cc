// Adapters against PyTorch's formulas of LoRA, rsLoRA and DoRA (adapter_reference.py): 50 steps of AdamW in float64
// from the same values, beside linear layers and convolutions, on both backends.
#include "backends/registry.h"
#include "frontend/base/status.h"
#include "gtest/gtest.h"
#include "optim/plan/adapter_init.h"
#include "tests/parity/reference.h"
#include "tests/test_device.h"

namespace onnxtrain::parity {
namespace {

struct AdapterCase {
  const char* model;
  const char* variant;
};
const AdapterCase kCases[] = {{"mlp", "lora"},         {"lenet_smooth", "lora"},  {"lenet_smooth", "dora"},
                              {"encoder_pre", "lora"}, {"encoder_pre", "rslora"}, {"encoder_pre", "dora"}};

// The updates of the products that the reference adapts, with its initial values.
std::vector<LowRankUpdate> MakeUpdates(const OnnxModel& model, const Arrays& want) {
  const Arrays initial = WithPrefix(want, "i:");
  std::vector<LowRankUpdate> updates;
  size_t used = 0;
  for (const LowRankTarget& target : ListLowRankTargets(model)) {
    LowRankUpdate update = MakeUpdate(target);
    if (!initial.contains(update.a_name())) continue;
    update.scale = want.at("scale").At(0);
    update.a = initial.at(update.a_name()).CastTo(DType::kFloat32);
    update.b = initial.at(update.b_name()).CastTo(DType::kFloat32);
    if (const auto found = initial.find(update.magnitude_name()); found != initial.end())
      update.magnitude = found->second.CastTo(DType::kFloat32);
    used += update.Trained().size();
    updates.push_back(std::move(update));
  }
  EXPECT_EQ(used, initial.size());
  return updates;
}

absl::StatusOr<std::unique_ptr<Session>> Start(const AdapterCase& c, Backend* backend, StepForm form) {
  ASSIGN_OR_RETURN(auto model, OnnxModel::Load(ReferencePath(StrCat(c.model, "-opset16.onnx"))));
  ModelEdits edits;
  edits.low_rank = MakeUpdates(*model, Reference(c.model, c.variant));
  SessionOptions options;
  for (const LowRankUpdate& update : edits.low_rank) {
    for (const auto& [name, initial] : update.Trained()) options.trainable.adapters.push_back(name);
  }
  ASSIGN_OR_RETURN(model, model->LoadEdited(std::move(edits)));
  options.import.float_type = DType::kFloat64;
  options.loss.name = "cross_entropy";
  options.labels = {.present = true, .sample = {DType::kInt64, {}}, .max_value = 1};
  options.optimizer = {.rule = "adamw", .lr = 1e-3, .weight_decay = 0.01, .no_decay = "none", .max_grad_norm = 1.0};
  options.micro_batch = kBatch;
  options.step_form = form;
  return Session::Create(model, backend, options);
}

void ExpectParity(const AdapterCase& c, const std::string& backend_name, StepForm form) {
  const Arrays &want = Reference(c.model, c.variant), &data = Reference(c.model, "data");
  const auto backend = CreateBackend(backend_name, TestOptions(backend_name));
  ASSERT_TRUE(backend.ok()) << backend.status();
  const auto session = Start(c, backend->get(), form);
  ASSERT_TRUE(session.ok()) << session.status();
  for (int step = 0; step < kSteps; ++step) {
    ASSERT_TRUE((*session)->Step(MakeGlobalBatch(data, DType::kFloat64, step * kBatch, kBatch)).ok());
    const auto report = (*session)->Report();
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_NEAR(report->loss, want.at("losses").At(step), 1e-10) << step;
  }
  const auto weights = (*session)->Weights();
  ASSERT_TRUE(weights.ok()) << weights.status();
  for (const auto& [name, value] : WithPrefix(want, "w:"))
    EXPECT_LE(LargestDifference(weights->at(name), value), 1e-9) << name;
  for (const auto& [name, value] : Reference(c.model, "weights")) {  // the base has not moved
    const auto base = weights->find(name);
    EXPECT_TRUE(base == weights->end() || LargestDifference(base->second, value) == 0) << name;
  }
}

TEST(AdapterParity, FiftyStepsInFloat64) {
  if (!HaveReference()) GTEST_FAIL();
  for (const AdapterCase& c : kCases) {
    for (const char* backend : {"torch", "cpu"}) {
      for (const StepForm form : {StepForm::kMicroAndApply, StepForm::kOneProgram}) {
        SCOPED_TRACE(StrCat(c.model, " ", c.variant, " ", backend, " form ", static_cast<int>(form)));
        ExpectParity(c, backend, form);
      }
    }
  }
}

}  // namespace
}  // namespace onnxtrain::parity
