// Whole training runs against PyTorch: the same exported weights, the same batches, the same optimizer.
//
// float64 must agree to 1e-10 over 50 steps on both backends. float32 trajectories are chaotic, so there one step must
// agree (loss 1e-6, each gradient 1e-4 in relative norm), and in a trajectory each tensor, running statistics too, may
// be at most three times as far from PyTorch's float64 one as PyTorch's own float32 runs are (threads, oneDNN on and
// off). Parameters whose gradient is truly zero (a bias in front of BatchNorm, the key's bias in attention) get
// rounding noise for a gradient, which Adam blows up to full steps: PyTorch's own runs wander as far, and bound them as
// well.
#include <algorithm>
#include <cmath>

#include "backends/registry.h"
#include "frontend/base/status.h"
#include "gtest/gtest.h"
#include "optim/step/session.h"
#include "tests/parity/reference.h"
#include "tests/test_device.h"

namespace onnxtrain::parity {
namespace {

struct Rule {
  const char* name;
  OptimizerSpec spec;
};
// As RULES in reference.py.
const Rule kRules[] = {
    {"sgd", {.rule = "sgd", .lr = 0.05, .momentum = 0.9, .weight_decay = 1e-4, .no_decay = "none", .max_grad_norm = 0}},
    {"adamw", {.rule = "adamw", .lr = 1e-3, .weight_decay = 0.01, .no_decay = "none", .max_grad_norm = 1.0}},
};

// Of PyTorch's own distances; and the distance that rounding the final weights explains where it has none.
constexpr double kSpread = 3, kRounding = 1e-7;

// Without kinks at which rounding decides between branches (models.py). The RNN's few values keep clear of ReLU's.
const char* const kSmoothModels[] = {"mlp",  "lenet_smooth", "resnet", "encoder_pre", "encoder_post",
                                     "lstm", "gru",          "rnn",    "tagger"};

struct Setting {
  std::string model, backend;
  DType dtype = DType::kFloat32;
  int opset = 16;
  int64_t micro_batch = kBatch;
  OptimizerSpec optimizer = {};
  StepForm form = StepForm::kMicroAndApply;
};

// A session with the backend it runs on.
struct Run {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Session> session;
};

absl::StatusOr<Run> Start(const Setting& s) {
  ASSIGN_OR_RETURN(auto model, OnnxModel::Load(ReferencePath(StrCat(s.model, "-opset", s.opset, ".onnx"))));
  const Type& labels = Reference(s.model, "data").at("y").type();
  SessionOptions options;
  options.import.float_type = s.dtype;
  options.loss.name = "cross_entropy";
  options.labels = {
      .present = true, .sample = {DType::kInt64, Shape(labels.shape.begin() + 1, labels.shape.end())}, .max_value = 1};
  options.optimizer = s.optimizer;
  options.micro_batch = s.micro_batch;
  options.step_form = s.form;
  Run run;
  ASSIGN_OR_RETURN(run.backend, CreateBackend(s.backend, TestOptions(s.backend)));
  ASSIGN_OR_RETURN(run.session, Session::Create(model, run.backend.get(), options));
  return run;
}

absl::StatusOr<GradientResult> ComputeGradients(const Setting& setting, const Arrays& data, int64_t samples) {
  ASSIGN_OR_RETURN(const Run run, Start(setting));
  return run.session->Gradients(MakeGlobalBatch(data, setting.dtype, 0, samples), GradientsOf::kWeights);
}

struct Trajectory {
  std::vector<double> losses;
  Arrays weights;
};

absl::StatusOr<Trajectory> Train(const Setting& setting) {
  ASSIGN_OR_RETURN(const Run run, Start(setting));
  Trajectory out;
  for (int step = 0; step < kSteps; ++step) {
    RETURN_IF_ERROR(
        run.session->Step(MakeGlobalBatch(Reference(setting.model, "data"), setting.dtype, step * kBatch, kBatch)));
    ASSIGN_OR_RETURN(const StepReport report, run.session->Report());
    if (report.skipped != 0) return Invalid("step ", step, " was skipped");
    out.losses.push_back(report.loss);
  }
  ASSIGN_OR_RETURN(out.weights, run.session->Weights());
  return out;
}

// The gradients must be those of the reference: each within `tolerance` in relative norm, the zero ones within `zero`.
void ExpectGradients(const GradientResult& got, const Arrays& want, double tolerance, double zero) {
  const Arrays gradients = WithPrefix(want, "g:"), zeros = WithPrefix(want, "z:");
  EXPECT_EQ(got.gradients.size(), gradients.size() + zeros.size());
  for (const auto& [name, value] : gradients) {
    ASSERT_TRUE(got.gradients.contains(name)) << name;
    EXPECT_LE(RelativeDistance(got.gradients.at(name), value), tolerance) << name;
  }
  for (const auto& [name, value] : zeros) {
    ASSERT_TRUE(got.gradients.contains(name)) << name;
    EXPECT_LE(LargestValue(got.gradients.at(name)), zero) << name << " (truly zero)";
  }
}

class Parity : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!HaveReference()) GTEST_FAIL();
  }
  std::string model() const { return GetParam(); }
};

TEST_P(Parity, TheFileHoldsTheWeights) {
  for (int opset : {13, 16}) {
    const auto model = OnnxModel::Load(ReferencePath(StrCat(this->model(), "-opset", opset, ".onnx")));
    ASSERT_TRUE(model.ok()) << model.status();
    for (const auto& [name, value] : Reference(this->model(), "weights")) {
      const HostTensor* stored = (*model)->Initializer(name);
      ASSERT_NE(stored, nullptr) << name;
      EXPECT_TRUE(stored->SameBytes(value)) << name;
    }
  }
}

TEST_P(Parity, FirstStep) {
  const Arrays& want = Reference(model(), "first");
  const double loss = want.at("loss").At(0);
  const struct {
    const char* backend;
    DType dtype;
    int opset;
    double loss, gradient, zero;
  } kCases[] = {
      {"torch", DType::kFloat64, 16, 1e-12, 1e-10, 1e-12}, {"torch", DType::kFloat64, 13, 1e-12, 1e-10, 1e-12},
      {"cpu", DType::kFloat64, 16, 1e-12, 1e-10, 1e-12},   {"cpu", DType::kFloat64, 13, 1e-12, 1e-10, 1e-12},
      {"torch", DType::kFloat32, 16, 1e-6, 1e-4, 1e-5},    {"torch", DType::kFloat32, 13, 1e-6, 1e-4, 1e-5},
      {"cpu", DType::kFloat32, 16, 1e-6, 1e-4, 1e-5},      {"cpu", DType::kFloat32, 13, 1e-6, 1e-4, 1e-5}};
  for (const auto& c : kCases) {
    SCOPED_TRACE(StrCat(c.backend, " ", ToString(c.dtype), " opset ", c.opset));
    const auto got = ComputeGradients({.model = model(), .backend = c.backend, .dtype = c.dtype, .opset = c.opset},
                                      Reference(model(), "data"), kBatch);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_NEAR(got->loss, loss, c.loss * std::abs(loss));
    ExpectGradients(*got, want, c.gradient, c.zero);
  }
}

// The loss alone, in pieces, is that of the gradients, and leaves no trace.
TEST_P(Parity, TrainingLoss) {
  const struct {
    const char* backend;
    DType dtype;
    double tolerance;
  } kCases[] = {{"torch", DType::kFloat64, 1e-13},
                {"cpu", DType::kFloat64, 1e-13},
                {"torch", DType::kFloat32, 1e-6},
                {"cpu", DType::kFloat32, 1e-6}};
  for (const auto& c : kCases) {
    SCOPED_TRACE(StrCat(c.backend, " ", ToString(c.dtype)));
    const auto run = Start({.model = model(), .backend = c.backend, .dtype = c.dtype, .micro_batch = 5});
    ASSERT_TRUE(run.ok()) << run.status();
    const GlobalBatch global_batch = MakeGlobalBatch(Reference(model(), "data"), c.dtype, 0, kBatch);
    const auto before = run->session->Weights();
    const auto want = run->session->Gradients(global_batch, GradientsOf::kWeights);
    const auto got = run->session->TrainingLoss(global_batch), again = run->session->TrainingLoss(global_batch);
    const auto after = run->session->Weights();
    ASSERT_TRUE(before.ok() && want.ok() && got.ok() && again.ok() && after.ok()) << want.status() << got.status();
    EXPECT_NEAR(*got, want->loss, c.tolerance * std::abs(want->loss));
    EXPECT_EQ(*got, *again);
    for (const auto& [name, value] : *after) EXPECT_TRUE(value.SameBytes(before->at(name))) << name;
  }
}

void ExpectTrajectory(const Trajectory& got, const Arrays& want, double tolerance) {
  const HostTensor losses = HostTensor::FromDoubles({DType::kFloat64, {kSteps}}, got.losses);
  EXPECT_LE(LargestDifference(losses, want.at("losses")), tolerance);
  for (const auto& [name, value] : WithPrefix(want, "w:")) {
    ASSERT_TRUE(got.weights.contains(name)) << name;
    EXPECT_LE(LargestDifference(got.weights.at(name), value), tolerance) << name;
  }
}

struct Way {
  const Rule& rule;
  const char* backend;
  StepForm form;

  std::string Name() const {
    return StrCat(backend, " ", rule.name, form == StepForm::kOneProgram ? " in one program" : "");
  }
};

std::vector<Way> Ways() {
  std::vector<Way> ways;
  for (const Rule& rule : kRules) {
    for (const char* backend : {"torch", "cpu"}) {
      for (StepForm form : {StepForm::kMicroAndApply, StepForm::kOneProgram}) ways.push_back({rule, backend, form});
    }
  }
  return ways;
}

TEST_P(Parity, FiftyStepsInFloat64) {
  for (const Way& way : Ways()) {
    SCOPED_TRACE(way.Name());
    const auto got = Train({.model = model(),
                            .backend = way.backend,
                            .dtype = DType::kFloat64,
                            .optimizer = way.rule.spec,
                            .form = way.form});
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectTrajectory(*got, Reference(model(), way.rule.name), 1e-10);
  }
}

double Largest(const HostTensor& t) {
  const std::vector<double> values = t.ToDoubles();
  return *std::max_element(values.begin(), values.end());
}

void ExpectNear(const Trajectory& got, const Arrays& want) {
  double loss = 0;
  for (int i = 0; i < kSteps; ++i) loss = std::max(loss, std::abs(got.losses[i] - want.at("losses").At(i)));
  EXPECT_LE(loss, kSpread * Largest(want.at("loss_distance")));
  const Arrays own = WithPrefix(want, "d:");
  for (const auto& [name, value] : WithPrefix(want, "w:")) {
    ASSERT_TRUE(got.weights.contains(name)) << name;
    EXPECT_LE(RelativeDistance(got.weights.at(name), value), std::max(kSpread * Largest(own.at(name)), kRounding))
        << name;
  }
}

class ParityInFloat32 : public Parity {};

TEST_P(ParityInFloat32, FiftyStepsStayAsNearAsPyTorchToItself) {
  for (const Way& way : Ways()) {
    SCOPED_TRACE(way.Name());
    const auto got = Train({.model = model(), .backend = way.backend, .optimizer = way.rule.spec, .form = way.form});
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectNear(*got, Reference(model(), way.rule.name));
  }
}

const auto kName = [](const auto& info) { return std::string(info.param); };
INSTANTIATE_TEST_SUITE_P(SmoothModels, Parity, testing::ValuesIn(kSmoothModels), kName);
INSTANTIATE_TEST_SUITE_P(KinkedModels, Parity, testing::Values("lenet"), kName);
INSTANTIATE_TEST_SUITE_P(SmoothModels, ParityInFloat32, testing::ValuesIn(kSmoothModels), kName);

// One window in 1, 2, 4 and 7 pieces: the same loss and gradients to rounding, although the last piece is short and the
// pieces hold different numbers of targets that count.
class Accumulation : public Parity {};

TEST_P(Accumulation, MicroBatchesAccumulateTheGlobalBatchGradient) {
  const Arrays& global_batch = Reference(model(), "global_batch");
  const int64_t samples = global_batch.at("x").shape()[0];
  const struct {
    const char* backend;
    DType dtype;
    double tolerance, against_pytorch, zero;
  } kCases[] = {{"torch", DType::kFloat64, 1e-12, 1e-10, 1e-12},
                {"cpu", DType::kFloat64, 1e-12, 1e-10, 1e-12},
                {"torch", DType::kFloat32, 1e-6, 1e-4, 1e-5},
                {"cpu", DType::kFloat32, 1e-6, 1e-4, 1e-5}};
  for (const auto& c : kCases) {
    Arrays whole;
    double loss = 0;
    for (int pieces : {1, 2, 4, 7}) {
      SCOPED_TRACE(StrCat(c.backend, " ", ToString(c.dtype), " in ", pieces, " pieces"));
      const int64_t micro = (samples + pieces - 1) / pieces;
      ASSERT_EQ((samples + micro - 1) / micro, pieces);
      const auto got = ComputeGradients(
          {.model = model(), .backend = c.backend, .dtype = c.dtype, .micro_batch = micro}, global_batch, samples);
      ASSERT_TRUE(got.ok()) << got.status();
      if (pieces == 1) {
        EXPECT_NEAR(got->loss, global_batch.at("loss").At(0), 1e-6);
        ExpectGradients(*got, global_batch, c.against_pytorch, c.zero);
        whole = got->gradients;
        loss = got->loss;
        continue;
      }
      EXPECT_NEAR(got->loss, loss, c.tolerance * std::abs(loss));
      // The gradient of the global batch is one vector; a small part of it may lose a digit more to the order of sums.
      EXPECT_LE(RelativeDistance(got->gradients, whole), c.tolerance);
      for (const auto& [name, gradient] : WithPrefix(global_batch, "g:")) {
        EXPECT_LE(RelativeDistance(got->gradients.at(name), whole.at(name)), 10 * c.tolerance) << name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Accumulation, testing::Values("mlp", "lenet", "encoder_post", "tagger"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace onnxtrain::parity
