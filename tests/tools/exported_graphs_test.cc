// Graphs for other runtimes: export --gradient-graph (grad --out g.onnx) and export --training-graph.
#include <gmock/gmock.h>

#include <cmath>

#include "frontend/data/sources/numpy.h"
#include "frontend/onnx/import.h"
#include "frontend/ops/host_eval.h"
#include "tests/tools/blobs.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

class ExportedGraphs : public Scratch {
 protected:
  ExportedGraphs() {
    tiny::Mlp(3).Save(Path("m.onnx"));
    EXPECT_TRUE(WriteNpz(Path("d.npz"), Blobs(24)).ok());
  }

  std::map<std::string, HostTensor> Read(const std::string& name) const {
    std::map<std::string, HostTensor> arrays;
    NamedArrays stored = *ReadNpz(Path(name));
    for (auto& [array, value] : stored) arrays.emplace(array, std::move(value));
    return arrays;
  }
};

void ExpectNear(const HostTensor& got, const HostTensor& want, double tolerance = 1e-6) {
  ASSERT_EQ(got.shape(), want.shape());
  for (int64_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got.At(i), want.At(i), tolerance) << i;
}

// The model that is written is read again: its outputs are the gradients, and so are the gradients of its loss.
TEST_F(ExportedGraphs, HoldGradients) {
  const std::string batch = " --data d.npz --batch-size 24 --quiet";
  ASSERT_EQ(Run("grad --model m.onnx --out g.npz" + batch).code, 0);
  ASSERT_EQ(Run("grad --model m.onnx --out g.onnx" + batch).code, 0);
  const Outcome o = Run("grad --model g.onnx --loss output:loss --out again.npz" + batch);
  ASSERT_EQ(o.code, 0) << o.err;
  const auto want = Read("g.npz"), again = Read("again.npz");
  int weights = 0;
  for (const auto& [name, gradient] : want) {
    if (!name.starts_with("grad:")) continue;
    ++weights;
    ExpectNear(again.at(name.substr(5) + "_grad"), gradient);
    ExpectNear(again.at(name), gradient);
  }
  EXPECT_EQ(weights, 4);
  ExpectNear(again.at("y"), want.at("y"));
  EXPECT_NEAR(again.at("loss").At(0), want.at("loss").At(0), 1e-6);
}

TEST_F(ExportedGraphs, HoldGradientsOfChosenWeights) {
  ASSERT_EQ(Run("grad --model m.onnx --data d.npz --quiet --train w2 --out g.onnx").code, 0);
  ASSERT_EQ(Run("grad --model g.onnx --data d.npz --quiet --loss output:loss --out again.npz").code, 0);
  const auto again = Read("again.npz");
  EXPECT_TRUE(again.contains("w2_grad"));
  EXPECT_FALSE(again.contains("w1_grad"));
}

TEST_F(ExportedGraphs, NeverReplaceTheModel) {
  EXPECT_EQ(Run("grad --model m.onnx --data d.npz --quiet --out m.onnx").code, 1);
  EXPECT_EQ(Run("inspect --model m.onnx").code, 0);
  EXPECT_THAT(Run("export --model m.onnx --data d.npz --gradient-graph g.onnx --training-graph ./g.onnx").err,
              testing::HasSubstr("is the file of --gradient-graph"));
  EXPECT_FALSE(Exists("g.onnx"));
}

TEST_F(ExportedGraphs, HoldGradientsOfInputs) {
  const std::string batch = " --data d.npz --batch-size 5 --quiet --input-gradients";
  ASSERT_EQ(Run("grad --model m.onnx --out g.npz" + batch).code, 0);
  ASSERT_EQ(Run("export --model m.onnx --data d.npz --input-gradients --gradient-graph g.onnx").code, 0);
  ASSERT_EQ(Run("grad --model g.onnx --loss output:loss --out again.npz" + batch).code, 0);
  ExpectNear(Read("again.npz").at("x_grad"), Read("g.npz").at("grad:x"));
}

// Labels that are ignored do not count, in batches of any size.
TEST_F(ExportedGraphs, CountTargets) {
  NamedArrays arrays = Blobs(24);
  for (int64_t i = 0; i < 24; i += 3) arrays[1].second.SetInt(i, -1);
  ASSERT_TRUE(WriteNpz(Path("d.npz"), arrays).ok());
  const std::string data = " --data d.npz --quiet", loss = " --ignore-index -1 --class-weights 1,2,3";
  ASSERT_EQ(Run("export --model m.onnx --data d.npz --gradient-graph g.onnx" + loss).code, 0);
  for (const char* batch : {" --batch-size 4", " --batch-size 23"}) {
    ASSERT_EQ(Run(StrCat("grad --model m.onnx --out g.npz", data, loss, batch)).code, 0);
    ASSERT_EQ(Run(StrCat("grad --model g.onnx --loss output:loss --out again.npz", data, batch)).code, 0);
    const auto want = Read("g.npz"), again = Read("again.npz");
    EXPECT_NEAR(again.at("loss").At(0), want.at("loss").At(0), 1e-6) << batch;
    ExpectNear(again.at("w1_grad"), want.at("grad:w1"));
  }
}

using Tensors = std::map<std::string, HostTensor>;

// Runs a model with some of its tensors replaced. Returns its outputs by name.
Tensors RunModel(const std::string& path, const Tensors& state, const Tensors& feeds) {
  ModelEdits edits;
  edits.tensors = state;
  const auto model = OnnxModel::Load(path, edits);
  EXPECT_TRUE(model.ok()) << model.status();
  ImportOptions options{.batch = feeds.begin()->second.shape()[0]};
  options.conformance = true;
  const ImportedModel imported = *Import(**model, options);
  Tensors inputs = feeds;
  for (const ImportedWeight& weight : imported.weights) inputs.emplace(weight.name, weight.value);
  const auto values = Interpret(imported.graph, inputs);
  EXPECT_TRUE(values.ok()) << values.status();
  Tensors outputs;
  for (size_t i = 0; i < values->size(); ++i) outputs.emplace(imported.graph.outputs()[i].name, (*values)[i]);
  return outputs;
}

// Rows [first, first + count).
HostTensor Rows(const HostTensor& tensor, int64_t first, int64_t count) {
  Shape shape = tensor.shape();
  const int64_t row = tensor.size() / shape[0];
  shape[0] = count;
  HostTensor rows({tensor.dtype(), shape});
  for (int64_t i = 0; i < rows.size(); ++i) rows.Set(i, tensor.At(first * row + i));
  return rows;
}

// Steps through the graph equal those of training, weights and moments handed on from step to step. Rules that divide
// gradients by their size move each weight by up to the rate, with the relative error of its gradient: 1e-4.
TEST_F(ExportedGraphs, TrainAsTrainingDoes) {
  constexpr double kTolerance = 6 * 0.01 * 1e-4;  // steps × rate × error
  const NamedArrays data = Blobs(24);
  for (const std::string rule : {"--optimizer adamw --weight-decay 0.05", "--optimizer sgd --momentum 0.9 --nesterov",
                                 "--optimizer lamb", "--optimizer adafactor"}) {
    ASSERT_EQ(Run("export --model m.onnx --data d.npz --training-graph t.onnx --lr 0.01 " + rule).code, 0) << rule;
    Tensors state;
    double loss = 0;
    for (int step = 0; step < 6; ++step) {
      Tensors feeds;
      for (const auto& [name, array] : data) feeds.emplace(name, Rows(array, step % 3 * 8, 8));
      Tensors outputs = RunModel(Path("t.onnx"), state, feeds);
      loss = outputs.at("loss").At(0);
      for (auto& [name, value] : outputs) {
        if (name.ends_with("_new")) state[name.substr(0, name.size() - 4)] = std::move(value);
      }
    }
    EXPECT_EQ(state.at("step").At(0), 6);
    const std::string run =
        "--model m.onnx --data d.npz --lr 0.01 --max-steps 6 --batch-size 8 --no-shuffle --backend cpu --overwrite "
        "--out run ";
    ASSERT_EQ(Run(run + rule).code, 0) << rule;
    SCOPED_TRACE(rule);
    const auto trained = OnnxModel::Load(Path("run/model.onnx"));
    ASSERT_TRUE(trained.ok());
    for (const char* name : {"w1", "b1", "w2", "b2"})
      ExpectNear(state.at(name), *(*trained)->Initializer(name), kTolerance);
    EXPECT_LT(loss, 1.5) << rule;
  }
}

// Constants of batch normalization, n / (n − 1), follow the batch.
TEST_F(ExportedGraphs, NormalizeBatchesOfAnySize) {
  tiny::Model m = tiny::Mlp(3);
  m.nodes[2] = {"BatchNormalization", {"h1", "scale", "shift", "mean", "var"}, {"h"}};
  for (const auto& [name, value] : {std::pair("scale", 1.f), {"shift", 0.f}, {"mean", 0.f}, {"var", 1.f}})
    m.weights.push_back({name, {16}, std::vector<float>(16, value)});
  m.Save(Path("m.onnx"));
  ASSERT_THAT(Run("export --model m.onnx --data d.npz --training-graph t.onnx --optimizer sgd --lr 0.1").out,
              testing::HasSubstr("of batches of any size"));
  for (const int64_t batch : {2, 5, 24}) {
    Tensors feeds;
    for (const auto& [name, array] : Blobs(24)) feeds.emplace(name, Rows(array, 0, batch));
    const Tensors outputs = RunModel(Path("t.onnx"), {}, feeds);
    ASSERT_EQ(Run("--model m.onnx --data d.npz --optimizer sgd --lr 0.1 --max-steps 1 --no-shuffle --backend cpu "
                  "--overwrite --out run "
                  "--batch-size " +
                  std::to_string(batch))
                  .code,
              0);
    const auto trained = OnnxModel::Load(Path("run/model.onnx"));
    for (const char* name : {"w1", "scale", "mean", "var"})
      ExpectNear(outputs.at(std::string(name) + "_new"), *(*trained)->Initializer(name));
  }
}

// The gradient that is written has the mask of the forward pass, as the gradient of the written loss has.
TEST_F(ExportedGraphs, DrawOneMaskForBothPasses) {
  tiny::Model m = tiny::Mlp(3);
  m.nodes.insert(m.nodes.begin() + 3, {"Dropout", {"h"}, {"dropped"}});
  m.nodes[4].inputs[0] = "dropped";
  m.Save(Path("m.onnx"));
  ASSERT_EQ(Run("export --model m.onnx --data d.npz --dropout 0.5 --gradient-graph g.onnx").code, 0);
  const Outcome o = Run("grad --model g.onnx --data d.npz --quiet --loss output:loss --out again.npz");
  ASSERT_EQ(o.code, 0) << o.err;
  const auto again = Read("again.npz");
  ExpectNear(again.at("w1_grad"), again.at("grad:w1"));
  ASSERT_EQ(Run("grad --model m.onnx --data d.npz --quiet --out g.npz").code, 0);  // without masks
  double difference = 0;
  for (int64_t i = 0; i < 64; ++i)
    difference += std::abs(again.at("w1_grad").At(i) - Read("g.npz").at("grad:w1").At(i));
  EXPECT_GT(difference, 0.1);
}

TEST_F(ExportedGraphs, RefuseTheWeightsOfAnotherModel) {
  tiny::Model other = tiny::Mlp(4);
  other.weights = {{"w1", {4, 16}, tiny::Uniform(64, 0.5f, 1)}, {"w2", {16, 4}, tiny::Uniform(64, 0.5f, 2)}};
  other.nodes = {{"MatMul", {"x", "w1"}, {"h"}}, {"MatMul", {"h", "w2"}, {"y"}}};
  other.Save(Path("other.onnx"));
  for (tiny::Weight& weight : other.weights) weight.name += "_own";
  other.nodes = {{"MatMul", {"x", "w1_own"}, {"h"}}, {"MatMul", {"h", "w2_own"}, {"y"}}};
  other.Save(Path("named.onnx"));
  ASSERT_EQ(Run("--model m.onnx --data d.npz --max-steps 1 --save-every 1 --quiet --out run").code, 0);
  const std::string line = " --data d.npz --checkpoint run --training-graph t.onnx";
  EXPECT_THAT(Run("export --model other.onnx" + line).err, testing::HasSubstr("'w2' is [16,3], the model has [16,4]"));
  EXPECT_THAT(Run("export --model named.onnx" + line).err, testing::HasSubstr("run: holds no weight of the model"));
  EXPECT_FALSE(Exists("t.onnx"));
  EXPECT_EQ(Run("export --model m.onnx" + line).code, 0);
}

TEST_F(ExportedGraphs, ExplainWhatHasNoEffect) {
  const std::string line = "export --model m.onnx --data d.npz ";
  EXPECT_THAT(Run(line + "--gradient-graph g.onnx --lr 0.1").err, testing::HasSubstr("--lr: has no effect on a graph"));
  EXPECT_THAT(Run(line + "--out y.onnx").err, testing::HasSubstr("--data: has no effect on a model"));
  EXPECT_THAT(Run(line + "--training-graph t.onnx --betas 0.9,0.99 --optimizer sgd").err,
              testing::HasSubstr("--betas: has no effect: the --optimizer has none"));
  EXPECT_THAT(Run(line + "--training-graph t.onnx --out y.onnx").err,
              testing::HasSubstr("--out: has no effect beside"));
  EXPECT_EQ(Run(line + "--training-graph d.npz").code, 1);
  EXPECT_FALSE(Exists("g.onnx") || Exists("t.onnx") || Exists("y.onnx"));
}

}  // namespace
}  // namespace onnxtrain
