// Update rules given as ONNX models: --optimizer onnx:FILE.
#include <cmath>
#include <nlohmann/json.hpp>

#include "frontend/data/sources/numpy.h"
#include "frontend/onnx/import.h"
#include "tests/tools/blobs.h"
#include "tests/tools/run_scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

// velocity_new = 0.9·velocity + gradient, weight_new = weight − lr·velocity_new, of flat tensors.
tiny::Model Momentum() {
  tiny::Model m{.input = "weight", .input_shape = {-2}};
  m.more_inputs = {{"gradient", {-2}}, {"velocity", {-2}}, {"lr", {}}};
  m.nodes = {{"Mul", {"velocity", "decay"}, {"kept"}},
             {"Add", {"kept", "gradient"}, {"velocity_new"}},
             {"Mul", {"velocity_new", "lr"}, {"moved"}},
             {"Sub", {"weight", "moved"}, {"weight_new"}}};
  m.weights = {{"decay", {}, {0.9f}}};
  m.outputs = {"weight_new", "velocity_new"};
  return m;
}

// The gradient divided by its root mean square over the whole tensor, which padding must not reach.
tiny::Model Normalized() {
  tiny::Model m{.input = "weight", .input_shape = {-2}};
  m.more_inputs = {{"gradient", {-2}}, {"lr", {}}, {"step", {}}};
  m.nodes = {{"Mul", {"gradient", "gradient"}, {"square"}},
             {"ReduceMean", {"square"}, {"mean"}},
             {"Sqrt", {"mean"}, {"root"}},
             {"Add", {"root", "eps"}, {"safe"}},
             {"Div", {"gradient", "safe"}, {"unit"}},
             {"Add", {"step", "one"}, {"count"}},
             {"Div", {"lr", "count"}, {"rate"}},
             {"Mul", {"unit", "rate"}, {"moved"}},
             {"Sub", {"weight", "moved"}, {"weight_new"}}};
  m.weights = {{"eps", {}, {1e-8f}}, {"one", {}, {1}}};
  m.outputs = {"weight_new"};
  return m;
}

class OnnxRuleRun : public RunScratch {
 protected:
  OnnxRuleRun() {
    tiny::Mlp(3).Save(Path("m.onnx"));
    Momentum().Save(Path("momentum.onnx"));
    Normalized().Save(Path("normalized.onnx"));
    EXPECT_TRUE(WriteNpz(Path("d.npz"), Blobs(48)).ok());
  }

  HostTensor Weight(const std::string& run, const std::string& name) const {
    const auto model = OnnxModel::Load(Path(run + "/model.onnx"));
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? (*model)->Initializer(name)->Clone() : HostTensor();
  }

  const std::string line_ = "--model m.onnx --data d.npz --batch-size 12 --epochs 3 --lr 0.05 --quiet ";
};

void ExpectNear(const HostTensor& got, const HostTensor& want, double tolerance) {
  ASSERT_EQ(got.shape(), want.shape());
  for (int64_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got.At(i), want.At(i), tolerance) << i;
}

TEST_F(OnnxRuleRun, TrainsAsTheRuleOfThatName) {
  for (const char* decay : {"", "--weight-decay 0.01 "}) {
    ASSERT_EQ(Run(line_ + decay + "--optimizer sgd --momentum 0.9 --overwrite --out want").code, 0);
    for (const char* backend : {"cpu", "torch"}) {
      const Outcome o =
          Run(line_ + decay + "--overwrite --out got --optimizer onnx:momentum.onnx --backend " + backend);
      ASSERT_EQ(o.code, 0) << o.err;
      for (const char* name : {"w1", "b1", "w2", "b2"}) ExpectNear(Weight("got", name), Weight("want", name), 2e-6);
    }
  }
}

TEST_F(OnnxRuleRun, GoesOnFromItsCheckpoint) {
  ASSERT_EQ(Run(line_ + "--optimizer onnx:momentum.onnx --out whole").code, 0);
  ASSERT_EQ(Run(line_ + "--optimizer onnx:momentum.onnx --max-steps 5 --out half").code, 0);
  const Outcome o = Run("--flagfile half/config.flags --max-steps 12 --resume auto --out half --quiet");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(Weight("half", "w1").SameBytes(Weight("whole", "w1")));
}

// A rule that reads whole tensors is made for each: every weight moves by lr/(1 + step), root mean square.
TEST_F(OnnxRuleRun, ReadsWholeTensors) {
  const Outcome o = Run(line_ + "--max-steps 1 --optimizer onnx:normalized.onnx --out r");
  ASSERT_EQ(o.code, 0) << o.err;
  const auto before = OnnxModel::Load(Path("m.onnx"));
  for (const char* name : {"w1", "w2", "b2"}) {
    const HostTensor &old = *(*before)->Initializer(name), now = Weight("r", name);
    double square = 0;
    for (int64_t i = 0; i < old.size(); ++i) square += (now.At(i) - old.At(i)) * (now.At(i) - old.At(i));
    EXPECT_NEAR(std::sqrt(square / static_cast<double>(old.size())), 0.05, 1e-4) << name;
  }
}

TEST_F(OnnxRuleRun, IsPartOfTrainingGraphs) {
  const Outcome o = Run("export --model m.onnx --data d.npz --training-graph t.onnx --optimizer onnx:momentum.onnx");
  ASSERT_EQ(o.code, 0) << o.err;
  const auto model = OnnxModel::Load(Path("t.onnx"));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_NE((*model)->Initializer("velocity:w1"), nullptr);
}

TEST_F(OnnxRuleRun, RefusalsNameTheRule) {
  const std::string line = "--model m.onnx --data d.npz --out r --optimizer ";
  ExpectRefused(Run(line + "onnx:missing.onnx"), "--optimizer: missing.onnx");
  ExpectRefused(Run(line + "onnx:"), "expected onnx:FILE");
  ExpectRefused(Run(line + "onnx:model"), "m.onnx: has no training_info");
  ExpectRefused(Run(line + "onnx:m.onnx"), "m.onnx: has no input 'weight'");
  ExpectRefused(Run(line + "nadam"), "or onnx:FILE");
  tiny::Model unfinished = Momentum();
  unfinished.outputs = {"weight_new"};
  unfinished.Save(Path("unfinished.onnx"));
  ExpectRefused(Run(line + "onnx:unfinished.onnx"), "a rule has velocity_new, weight_new");
  ExpectRefused(Run(line + "onnx:momentum.onnx --betas 0.9,0.99"), "--betas");
}

}  // namespace
}  // namespace onnxtrain
