// Every loss and its gradient against PyTorch's, and the gradient against central differences, in float64 on both
// backends.
#include <cmath>
#include <cstdlib>

#include "frontend/base/strings.h"
#include "frontend/data/sources/numpy.h"
#include "optim/step/global_batch.h"
#include "tests/optim/replay.h"
#include "tests/paths.h"
#include "tests/test_device.h"

namespace onnxtrain {
namespace {

struct Case {
  const char* name;  // in torch_losses.py
  const char* loss;
  std::vector<double> class_weights = {};
  double label_smoothing = 0;
};

const Case kCases[] = {
    {"ce", "ce"},
    {"ce_pixels_ignored", "cross_entropy"},
    {"ce_shares", "cross_entropy"},
    {"ce_weighted", "ce", {0.5, 2, 0, 3, 1}},
    {"ce_weighted_smooth", "ce", {0.5, 2, 0.25, 3}, 0.1},
    {"ce_weighted_shares", "ce", {0.5, 2, 0, 3}, 0.2},
    {"nll", "nll"},
    {"nll_weighted", "nll", {0.5, 2, 0, 3, 1}},
    {"bce", "bce"},
    {"mse", "mse"},
    {"l1", "l1"},
    {"huber", "huber:delta=0.5"},
    {"dot", "dot"},
    {"focal_coins", "focal"},
    {"focal_coins_sharp", "focal:gamma=0.5,alpha=0.6"},
    {"focal_classes", "focal:gamma=3,alpha=0.5"},
    {"focal_shares", "focal"},
    {"dice_pixels", "dice"},
    {"dice_steps", "dice:smooth=0.5"},
    {"dice_coins", "dice"},
    {"dice_mask", "dice"},
    {"ctc", "ctc"},
    {"ctc_blank_last", "ctc:blank=4"},
    {"ctc_too_few_steps", "ctc"},
    {"ctc_sums", "ctc:per_label=0"},
    {"ctc_ties", "ctc"},
    {"sum", "0.5*ce+2*l1:label=other"},
    {"sum_of_one_label", "ce+dice"},
};

using Arrays = std::map<std::string, HostTensor>;

Arrays Recorded() {
  const std::string path = BinaryPath("torch_losses.npz");
  const std::string command = StrCat("/usr/bin/python3 ", RepoPath("tests/optim/torch_losses.py"), " '", path, "'");
  EXPECT_EQ(std::system(command.c_str()), 0) << "it needs Debian's python3-torch and python3-numpy";
  auto arrays = ReadNpz(path);
  EXPECT_TRUE(arrays.ok()) << arrays.status();
  return {arrays->begin(), arrays->end()};
}

LabelInfo MakeLabelInfo(const HostTensor& labels) {
  return {.present = true,
          .sample = {labels.dtype(), Shape(labels.shape().begin() + 1, labels.shape().end())},
          .max_value = 9};
}

// One loss on y = 2·x with the inputs that PyTorch got.
class LossRun {
 public:
  LossRun(const Case& c, const Arrays& arrays, const std::string& backend) : x_(arrays.at(StrCat(c.name, ":x"))) {
    ImportedModel model;
    Builder b(&model.graph);
    Val y = b.Input(InputKind::kParameter, "x", x_.type()) * 2.0;
    // Distributions need a Softmax: without it a loss that accepts both forms reads labels as elements.
    if (std::string(c.name) == "focal_shares") y = b.Op("Softmax", {y}, {{"axis", int64_t{1}}});
    model.graph.AddOutput("y", y.id());
    model.outputs = {"y"};
    LossSpec spec{.name = c.loss, .label_smoothing = c.label_smoothing, .class_weights = c.class_weights};
    const HostTensor& label = arrays.at(StrCat(c.name, ":label"));
    const auto other = arrays.find(StrCat(c.name, ":label:1"));
    if (other != arrays.end()) spec.own_labels["other"] = MakeLabelInfo(other->second);
    auto choice = ChooseLoss(model, spec, MakeLabelInfo(label));
    EXPECT_TRUE(choice.ok()) << c.name << " " << choice.status();
    choice_ = *std::move(choice);
    const int64_t batch = x_.shape()[0];
    auto graph = BuildMicro(model, choice_, spec, batch, {});
    EXPECT_TRUE(graph.ok()) << c.name << " " << graph.status();
    EXPECT_TRUE(Verify(*graph).ok()) << c.name << " " << Verify(*graph);
    backend_ = CreateBackend(backend, TestOptions(backend, 1)).value();
    run_ = BoundProgram::Make(*backend_, backend_->Legalize(*graph).value()).value();
    std::vector<std::string> names;
    for (const LossFeed& feed : choice_.feeds) names.push_back(feed.name);
    GlobalBatch global_batch(names);
    for (size_t i = 0; i < names.size(); ++i) {
      const LossFeed& feed = choice_.feeds[i];
      const HostTensor& given = feed.label.empty() ? label : other->second;
      Type type = feed.sample;
      type.shape.insert(type.shape.begin(), batch);
      global_batch.Set(i, given.Reshaped(type.shape));
      Set(feed.name, given.Reshaped(type.shape));
    }
    LossDenominators counted(choice_, spec);
    EXPECT_TRUE(counted.Count(global_batch, batch).ok());
    weights_ = counted.weights();
    for (size_t i = 0; i < weights_.size(); ++i) {
      Set(TermName(kInverseDenominatorFeed, i),
          HostTensor::Scalar(x_.dtype(), InverseDenominator(choice_.terms[i], weights_[i])));
    }
  }

  double Loss(const HostTensor& x) {
    Set("x", x);
    EXPECT_TRUE(run_->Run().ok());
    std::vector<double> sums;
    for (size_t i = 0; i < weights_.size(); ++i)
      sums.push_back(run_->Get(TermName(device_scalar::kBatchLoss, i)).value().At(0));
    return MeanLoss(choice_, sums, weights_);
  }
  HostTensor Gradient() { return run_->Get(GradName("x")).value(); }
  const HostTensor& x() const { return x_; }

 private:
  void Set(const std::string& name, const HostTensor& value) { EXPECT_TRUE(run_->Set(name, value).ok()) << name; }

  HostTensor x_;
  LossChoice choice_;
  std::vector<double> weights_;
  std::unique_ptr<Backend> backend_;  // declared first: outlives its programs
  std::optional<BoundProgram> run_;
};

double Difference(LossRun& run, int64_t i) {
  constexpr double kStep = 1e-5;
  HostTensor above = run.x().Clone(), below = run.x().Clone();
  above.Set(i, above.At(i) + kStep);
  below.Set(i, below.At(i) - kStep);
  return (run.Loss(above) - run.Loss(below)) / (2 * kStep);
}

TEST(TorchLosses, ValuesAndGradientsAreEqual) {
  const Arrays arrays = Recorded();
  for (const Case& c : kCases) {
    for (const char* backend : {"cpu", "torch"}) {
      LossRun run(c, arrays, backend);
      const double want = arrays.at(StrCat(c.name, ":loss")).At(0);
      EXPECT_NEAR(run.Loss(run.x()), want, 1e-12 * std::fabs(want)) << c.name << " on " << backend;
      const HostTensor got = run.Gradient();
      const HostTensor& gradient = arrays.at(StrCat(c.name, ":grad"));
      for (int64_t i = 0; i < got.size(); ++i) {
        EXPECT_NEAR(got.At(i), gradient.At(i), 1e-12) << c.name << " on " << backend << " element " << i;
        EXPECT_NEAR(got.At(i), Difference(run, i), 1e-8) << c.name << " on " << backend << " element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace onnxtrain
