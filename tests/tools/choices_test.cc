// Models whose outputs are choices: they train on the scores in front of these, and keep their outputs.
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/onnx/import.h"
#include "frontend/ops/host_eval.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

// Mlp with further nodes behind y.
tiny::Model Choosing(std::vector<tiny::Op> nodes, std::vector<std::string> outputs, const std::string& tail = "") {
  tiny::Model m = tiny::Mlp(3, tail);
  for (tiny::Op& op : nodes) m.nodes.push_back(std::move(op));
  m.outputs = std::move(outputs);
  m.weights.push_back({"two", {1}, {2}});
  m.weights.push_back({"half", {1}, {0.5f}});
  return m;
}

tiny::Model TopK() {
  return Choosing({{"Cast", {"two"}, {"k"}, {}, {{"to", 7}}}, {"TopK", {"y", "k"}, {"values", "places"}}},
                  {"values", "places"}, "Softmax");
}

class Choices : public Scratch {
 protected:
  Choices() {
    HostTensor x({DType::kFloat32, {60, 4}}), label({DType::kInt64, {60}});
    const std::vector<float> noise = tiny::Uniform(240, 1, 5);
    for (int64_t i = 0; i < x.size(); ++i) x.Set(i, noise[i] + (i % 4 == i / 4 % 3 ? 2 : 0));
    for (int64_t i = 0; i < 60; ++i) label.SetInt(i, i % 3);
    EXPECT_TRUE(WriteNpz(Path("d.npz"), {{"x", x}, {"label", label}}).ok());
  }

  double GradLoss(const std::string& model) {
    const Outcome o = Run("grad --model " + model + " --data d.npz --out g.npz --quiet");
    EXPECT_EQ(o.code, 0) << o.err;
    const auto arrays = ReadNpz(Path("g.npz"));
    EXPECT_TRUE(arrays.ok()) << arrays.status();
    for (const auto& [name, tensor] : *arrays) {
      if (name == "loss") return tensor.At(0);
    }
    return -1;
  }
};

TEST_F(Choices, TrainOnTheScoresInFront) {
  tiny::Mlp(3).Save(Path("plain.onnx"));
  const double want = GradLoss("plain.onnx");
  const std::pair<tiny::Model, const char*> cases[] = {
      {Choosing({{"ArgMax", {"y"}, {"label"}, {}, {{"axis", 1}}}}, {"label"}), "in front of [ArgMax 'label_node']"},
      {Choosing({{"ArgMax", {"y"}, {"a"}, {}, {{"axis", 1}}},
                 {"Squeeze", {"a"}, {"b"}},
                 {"Cast", {"b"}, {"label"}, {}, {{"to", 1}}}},
                {"label"}, "Softmax"),
       "in front of [ArgMax 'a_node']"},
      {TopK(), "in front of [TopK 'values_node']"},
      {Choosing({{"Greater", {"y", "half"}, {"label"}}}, {"label"}, "Softmax"), "in front of [Greater 'label_node']"},
      {Choosing({{"Cast", {"y"}, {"label"}, {}, {{"to", 7}}}}, {"label"}), "in front of [Cast 'label_node']"},
      {Choosing({{"Round", {"y"}, {"label"}}}, {"label"}), "in front of [Round 'label_node']"},
  };
  for (const auto& [model, note] : cases) {
    model.Save(Path("m.onnx"));
    EXPECT_NEAR(GradLoss("m.onnx"), want, 1e-6) << note;
    const Outcome trial = Run("--model m.onnx --max-steps 2 --overwrite --out t");
    EXPECT_EQ(trial.code, 0) << trial.err;
    const Outcome run = Run("--model m.onnx --data d.npz --epochs 2 --overwrite --out r");
    ASSERT_EQ(run.code, 0) << note << run.err;
    EXPECT_NE((run.out + run.err).find(note), std::string::npos) << run.out << run.err;
    EXPECT_EQ((*OnnxModel::Load(Path("r/model.onnx")))->outputs(), model.outputs);
    const Outcome eval = Run("eval --model r/model.onnx --data d.npz --json");
    EXPECT_EQ(eval.code, 0) << eval.err;
    EXPECT_TRUE(nlohmann::json::parse(eval.out).contains("accuracy")) << eval.out;
    EXPECT_EQ(Run("predict --model r/model.onnx --data d.npz --out p.csv").code, 0);
    EXPECT_EQ(Run("inspect --model m.onnx").code, 0);
  }
}

// Returns the share of samples for which the first output of the file is the label.
double ShareOfLabels(const std::string& file, const HostTensor& x, const HostTensor& label) {
  const auto model = Import(**OnnxModel::Load(file), {.batch = label.size()});
  EXPECT_TRUE(model.ok()) << model.status();
  std::map<std::string, HostTensor> inputs = {{"x", x}};
  for (const ImportedWeight& w : model->weights) inputs.emplace(w.name, w.value);
  const auto values = Interpret(model->graph, inputs);
  EXPECT_TRUE(values.ok()) << values.status();
  double right = 0;
  for (int64_t i = 0; i < label.size(); ++i) right += values->front().At(i) == label.At(i) ? 1 : 0;
  return right / static_cast<double>(label.size());
}

TEST_F(Choices, TheTrainedFileChoosesTheLabels) {
  const auto arrays = ReadNpz(Path("d.npz"));
  ASSERT_TRUE(arrays.ok()) << arrays.status();
  const HostTensor &x = arrays->at(0).second, &label = arrays->at(1).second;
  const tiny::Model models[] = {
      Choosing({{"ArgMin", {"y"}, {"label"}, {}, {{"axis", 1}}}}, {"label"}),
      Choosing({{"ArgMin", {"y"}, {"label"}, {}, {{"axis", 1}}}}, {"label"}, "Softmax"),
      Choosing({{"Neg", {"y"}, {"n"}}, {"ArgMin", {"n"}, {"label"}, {}, {{"axis", 1}}}}, {"label"}),
      Choosing({{"ReduceMax", {"y"}, {"best"}}, {"ArgMax", {"y"}, {"label"}, {}, {{"axis", 1}}}}, {"label", "best"}),
  };
  for (const tiny::Model& model : models) {
    model.Save(Path("m.onnx"));
    const Outcome run = Run("--model m.onnx --data d.npz --epochs 30 --lr 3e-2 --overwrite --out r");
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_GT(ShareOfLabels(Path("r/model.onnx"), x, label), 0.9) << run.out;
  }
}

// sigmoid(x) > 0.3 of x of −2, −1, −0.5 and 1: predict of the file chooses as the file does, training counts so.
TEST_F(Choices, PredictComparesAsTheFileDoes) {
  HostTensor x({DType::kFloat32, {4, 1}}), label({DType::kInt64, {4}});
  for (int64_t i = 0; i < 4; ++i) x.Set(i, std::vector<double>{-2, -1, -0.5, 1}[i]);
  for (int64_t i = 0; i < 4; ++i) label.SetInt(i, i / 2);
  ASSERT_TRUE(WriteNpz(Path("c.npz"), {{"x", x}, {"label", label}}).ok());
  const auto model = [](const char* op, bool sigmoid, float limit) {
    tiny::Model m{.input_shape = {-1, 1}};
    m.nodes = {{"MatMul", {"x", "w"}, {"s"}}};
    if (sigmoid) m.nodes.push_back({"Sigmoid", {"s"}, {"p"}});
    m.nodes.push_back({op, {sigmoid ? "p" : "s", "limit"}, {"label"}});
    m.weights = {{"w", {1, 1}, {1}}, {"limit", {1}, {limit}}};
    m.outputs = {"label"};
    return m;
  };
  struct Case {
    const char* op;
    bool sigmoid;
    float limit;
    std::vector<int> choices;
    const char* note;
  };
  const Case cases[] = {{"Greater", true, 0.3f, {0, 0, 1, 1}, " and compares with 0.3"},
                        {"Greater", true, 0.5f, {0, 0, 0, 1}, ""},
                        {"Greater", false, 0, {0, 0, 0, 1}, ""},
                        {"Greater", false, -1.5f, {0, 1, 1, 1}, " and compares with -1.5"},
                        {"Less", true, 0.3f, {1, 1, 0, 0}, " and compares with 0.3"},
                        {"Less", false, -1.5f, {1, 0, 0, 0}, " and compares with -1.5"}};
  for (const Case& c : cases) {
    model(c.op, c.sigmoid, c.limit).Save(Path("m.onnx"));
    const Outcome run = Run("--model m.onnx --data c.npz --max-steps 1 --lr 1e-12 --overwrite --out r");
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_EQ((run.out + run.err).find("and compares with") == std::string::npos, *c.note == 0) << run.err;
    EXPECT_NE((run.out + run.err).find(c.note), std::string::npos) << run.err;
    ASSERT_EQ(Run("predict --model r/model.onnx --data c.npz --out p.csv").code, 0);
    const std::vector<std::string> lines = absl::StrSplit(ReadAll(Path("p.csv")), '\n');
    ASSERT_GE(lines.size(), 5u);
    for (size_t i = 0; i < 4; ++i)
      EXPECT_TRUE(lines[i + 1].starts_with(StrCat(i, ",", c.choices[i], ",")))
          << c.op << c.limit << ": " << lines[i + 1];
    double hits = 0;
    for (size_t i = 0; i < 4; ++i) hits += c.choices[i] == label.IntAt(static_cast<int64_t>(i)) ? 1 : 0;
    const Outcome eval = Run("eval --model m.onnx --data c.npz --json");
    ASSERT_EQ(eval.code, 0) << eval.err;
    EXPECT_EQ(nlohmann::json::parse(eval.out)["accuracy"], hits / 4) << c.op << c.limit << eval.out;
    EXPECT_NE(run.err.find(absl::StrFormat("acc %6.2f%%", 25 * hits)), std::string::npos) << run.err;
  }
}

TEST_F(Choices, TwoLearnedValuesAreNotCompared) {
  tiny::Model m = Choosing({{"MatMul", {"x", "v"}, {"z"}}, {"Greater", {"y", "z"}, {"label"}}}, {"label"});
  m.weights.push_back({"v", {4, 3}, tiny::Uniform(12, 1, 8)});
  m.Save(Path("m.onnx"));
  const Outcome o = Run("--model m.onnx --data d.npz --max-steps 2 --out r");
  ExpectRefused(o,
                "[Greater 'label_node'] ends the gradient of its outputs, and compares 'y' and 'z', which both learn");
  EXPECT_EQ(Run("--model m.onnx --data d.npz --max-steps 2 --logits y --out r").code, 0);
}

TEST_F(Choices, WhatChangesThemIsNamed) {
  Choosing({{"ArgMax", {"y"}, {"a"}, {}, {{"axis", 1}}},
            {"Cast", {"a"}, {"f"}, {}, {{"to", 1}}},
            {"Sub", {"two", "f"}, {"label"}}},
           {"label"})
      .Save(Path("m.onnx"));
  const Outcome o = Run("--model m.onnx --data d.npz --max-steps 2 --out r");
  ExpectRefused(o, "[ArgMax 'a_node'] ends the gradient of its outputs, and [Sub 'label_node'] does not output");
  EXPECT_NE(o.err.find("--logits y"), std::string::npos) << o.err;
}

TEST_F(Choices, WithoutScoresTheOperatorIsNamed) {
  tiny::Model m;
  m.nodes = {{"ArgMax", {"x"}, {"label"}, {}, {{"axis", 1}}}};
  m.outputs = {"label"};
  m.weights = {{"w", {1, 2}, {1, 2}}};
  m.Save(Path("m.onnx"));
  const Outcome o = Run("--model m.onnx --max-steps 2 --out r");
  ExpectRefused(o, "no float output to train on: [ArgMax 'label_node'] ends the gradient");
  EXPECT_EQ(o.err.find("--dim"), std::string::npos) << o.err;
}

// What a choice selects, and a decoder of it, have weights of their own.
TEST_F(Choices, OutputsWithAGradientStayWhatIsTrained) {
  tiny::Model m = Choosing({{"ArgMax", {"y"}, {"code"}, {}, {{"axis", 1}, {"keepdims", 0}}},
                            {"Gather", {"book", "code"}, {"entry"}},
                            {"MatMul", {"entry", "decoder"}, {"out"}}},
                           {"out", "code"});
  m.weights.push_back({"book", {3, 5}, tiny::Uniform(15, 1, 8)});
  m.weights.push_back({"decoder", {5, 3}, tiny::Uniform(15, 1, 9)});
  m.Save(Path("m.onnx"));
  const Outcome o = Run("--model m.onnx --data d.npz --max-steps 2 --out r");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ((o.out + o.err).find("in front of"), std::string::npos) << o.out << o.err;
}

}  // namespace
}  // namespace onnxtrain
